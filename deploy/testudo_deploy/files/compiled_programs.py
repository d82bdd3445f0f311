"""Where the programs that JAX compiles are kept, so that the next command with the same program need not compile it."""

import os
from importlib import util
from pathlib import Path

_LARGEST_BYTES = 2_000_000_000
_FOLDER = "JAX_COMPILATION_CACHE_DIR"


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the user's cache folder, up to 2 GB; programs that are started inherit it.

    To be called before JAX is imported. A folder that the user has chosen (`JAX_COMPILATION_CACHE_DIR`, empty for none)
    stays; without a home folder nothing is kept. JAX finds a program by all that its compilation depends on.
    """
    if _FOLDER in os.environ:
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "testudo" / "programs"
    except RuntimeError:  # the user has no home folder
        return
    os.environ[_FOLDER] = str(folder)
    if util.find_spec("filelock") is not None:  # JAX needs it to limit the size
        os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(_LARGEST_BYTES))
