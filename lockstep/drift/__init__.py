"""Drift: a host compared with inventory and lock, and with the other hosts.

`subjects` has for each part of a host the question, the expected facts and the remedy; `compare`
finds the differences; both are pure. `hosts` is the only module that contacts anything. `view` and
`page` show the result.
"""
