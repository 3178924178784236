"""`python -m headstart`."""

import sys

from headstart.cli import main

sys.exit(main())
