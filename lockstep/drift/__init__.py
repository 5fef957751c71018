"""Drift: a host compared with inventory and lock, and with the other hosts.

`question` says what to ask one host, `expected` what should be found there, `compare` what differs;
all pure. `hosts` is the only module that contacts anything, `view` and `page` show the result.
"""
