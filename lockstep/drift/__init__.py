"""Drift: what a host is, against what inventory and record ask for, and against its twins.

`question` says what to ask one host, `expected` what should be found there, `compare` what differs;
all pure. `hosts` is the only module that contacts anything, `view` and `page` show the result.
"""
