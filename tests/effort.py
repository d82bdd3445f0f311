"""How many drawn examples a test takes in `make test`, and in `make test-all`."""

import os

FULL = os.environ.get("TESTUDO_HYPOTHESIS_PROFILE") == "full"


def examples(count):
    """Return a third of the examples, at least eight or all; `make test-all` takes all."""
    return count if FULL else min(count, max(8, count // 3))
