"""Drift: a host compared with inventory and lock, and with the other hosts.

`subjects` says for each part of a host what to ask, what should be found and what mends it;
`compare` what differs; all pure. `hosts` is the only module that contacts anything, `view` and
`page` show the result.
"""
