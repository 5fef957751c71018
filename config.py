"""pyinfra reads this first: an inventory that is not Python is refused before it is executed."""

import sys

from lockstep.deploy.checked import must_be_python

must_be_python(sys.argv[1:])
