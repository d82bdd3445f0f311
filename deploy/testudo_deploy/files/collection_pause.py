"""A pause of Python's garbage collector while many objects are made that all stay."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Generator[None]:
    """Pause the garbage collector, which would visit all objects made so far again and again.

    Objects without reference cycles are freed as always.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
