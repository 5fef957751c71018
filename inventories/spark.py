"""Your Sparks: edit this file, then `pyinfra inventories/spark.py deploy.py`.

One entry per Spark: its address (or a name from ~/.ssh/config), and its own settings. All other
settings are in group_data/all.py. A key of this file replaces the one there as a whole. Start the
names of your variables with an underscore: pyinfra takes other lists for groups of hosts.
"""

from lockstep.deploy.checked import checked

spark = checked(
    __file__,
    [
        # The account is the one of the first boot; it needs sudo. Its host key must be known:
        # log in once with `ssh`, compare the fingerprint, and accept it.
        ("spark-1.local", {"ssh_user": "spark", "operators": ("spark",)}),
        ("spark-2.local", {"ssh_user": "spark", "operators": ("spark",)}),
    ],
)
