"""The click commands behind `lockstep`; each module is one group."""
