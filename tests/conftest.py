"""Settings that hold for all tests."""

import os

from hypothesis import settings

# before any test module imports JAX: tests run on the CPU, also where an accelerator is present
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# no deadline: the machine may be busy; derandomised: a test fails for everybody or for nobody
settings.register_profile("testudo", deadline=None, derandomize=True)
settings.load_profile("testudo")
