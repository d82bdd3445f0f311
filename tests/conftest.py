"""Settings that hold for all tests."""

import os
import signal

from hypothesis import settings

# before any test module imports JAX: tests run on the CPU, also where an accelerator is present
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# a shell that starts the tests in the background has them ignore Ctrl-C, and all that they start with them
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# no deadline: the machine may be busy; derandomised: a test fails for everybody or for nobody
settings.register_profile("testudo", deadline=None, derandomize=True)
settings.load_profile("testudo")
