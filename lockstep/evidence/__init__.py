"""Facts of real Sparks, in one file that an owner can send in.

`report` asks the hosts as `lockstep diff` does (`lockstep.onhost.facts` runs there) and puts their
answers together; `scrub` is the one place where everything is left out that nobody else may
see, and `names` has the words that it looks for; `page` shows the result.
"""
