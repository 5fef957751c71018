"""Programs that run on a Spark, standard library only: `python3 /usr/local/lib/lockstep WORD`."""
