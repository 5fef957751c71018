"""Facts of real Sparks, in one file that an owner can send in.

`report` asks the hosts as `lockstep diff` does (`lockstep.onhost.facts` runs there) and combines
their answers. `scrub` is the one place that removes everything private, and `names` has the words
for which it looks. `page` shows the result.
"""
