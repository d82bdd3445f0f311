"""OpenGL without a display: which backend works here, and a drawing context on it."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from typing import Any

from testudo_hardware.errors import TestudoError

BACKENDS = ("egl", "osmesa")

# a bad driver can end the process: it is tried in another one
_PROBE = """
import importlib, mujoco, sys
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
"""
_PROBE_LIMIT_S = 60


@functools.cache
def working_backend() -> str:
    """Return the first backend that works here; MUJOCO_GL, if set to one, is the only one tried.

    Raises:
        TestudoError: none works; the text names the last line that each one printed.
    """
    # PyOpenGL holds one platform for the life of a process
    wish = os.environ.get("PYOPENGL_PLATFORM") or os.environ.get("MUJOCO_GL", "")
    reasons = []
    for backend in (wish,) if wish in BACKENDS else BACKENDS:
        reason = _probe(backend)
        if reason is None:
            return backend
        reasons.append(f"{backend}: {reason}")
    raise TestudoError(
        f"rendering: no off-screen OpenGL works here ({'; '.join(reasons)}); "
        "install the EGL or the OSMesa library of Mesa (packages libegl1 or libosmesa6)"
    )


def open_context(width: int, height: int) -> Any:
    """Return a current OpenGL context of this size, to be ended by its ``free()``.

    Raises:
        TestudoError: no backend works here.
    """
    module = importlib.import_module(f"mujoco.{working_backend()}")
    context = module.GLContext(width, height)
    context.make_current()
    return context


def _probe(backend: str) -> str | None:
    """Return None if the backend works, else the reason."""
    settings = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
    try:
        result = subprocess.run(  # noqa: S603 (our own interpreter and text)
            [sys.executable, "-c", _PROBE, backend],
            env={**settings, "MUJOCO_GL": backend},
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_LIMIT_S} s"
    if result.returncode == 0:
        return None
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"the process ended with {result.returncode}"
