"""Settings that all tests share."""

import os

os.environ.setdefault("CONVLOOM_VERIFY", "1")  # the rules of the IR are checked after every pass
