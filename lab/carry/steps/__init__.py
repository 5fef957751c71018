"""The steps of a whole run, by subject; `lab.carry.whole_run` does them."""
