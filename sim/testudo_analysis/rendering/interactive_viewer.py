"""Plays a run in MuJoCo's interactive viewer, repeatedly, until the window is closed."""

# mujoco is a binary module without stubs
# pyright: reportAttributeAccessIssue=false

import importlib
import os
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

import mujoco
import numpy as np

from testudo_analysis.rendering.animation import Animation
from testudo_analysis.rendering.scene_model import View, arena_camera, place_bodies, scene_model
from testudo_analysis.rendering.scene_renderer import add_trails
from testudo_hardware.errors import TestudoError

FRAMES_PER_S = 60.0
"""Frames shown per second."""

_PAUSE_S = 1.0  # at the end, before the run is repeated
_TRAIL_S = 4.0
_TRAIL_CORNER_S = 0.1
_ASPECT = 1.5  # of the viewer's window
_PROBE_LIMIT_S = 30
# the viewer opens its window in a thread; a failure there would block, so it is tested in another process
_PROBE = """
import glfw, sys
if not glfw.init():
    sys.exit("GLFW cannot be initialised")
glfw.window_hint(glfw.VISIBLE, 0)
if not glfw.create_window(64, 64, "", None, None):
    sys.exit("cannot open a window with OpenGL")
"""


def has_display() -> bool:
    """Return whether a display is available."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def play(animation: Animation, speed: float = 1.0, view: View = "oblique") -> None:
    """Play a run in a window until the user closes it.

    ``speed`` is a multiple of real time; ``view`` is the initial camera position.

    Raises:
        TestudoError: no window can be opened.
    """
    viewer = _viewer()
    model = scene_model(animation.scenery)
    data = mujoco.MjData(model)
    place_bodies(data, animation.scenery, animation.trajectory.moment(0))
    with viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False) as handle:
        camera = arena_camera(animation.scenery.arena, _ASPECT, view)
        with handle.lock():
            handle.cam.lookat[:] = camera.lookat
            handle.cam.azimuth, handle.cam.elevation = camera.azimuth, camera.elevation
            handle.cam.distance = camera.distance
        _run(handle, model, data, animation, speed)


def _run(handle: Any, model: mujoco.MjModel, data: mujoco.MjData, animation: Animation, speed: float) -> None:
    moments = animation.trajectory.resampled(speed / FRAMES_PER_S)
    last = len(moments.time_s) - 1
    trail = moments.position_world
    corner = max(1, round(_TRAIL_CORNER_S * FRAMES_PER_S / speed))
    reach = round(_TRAIL_S * FRAMES_PER_S / speed)
    round_s = last / FRAMES_PER_S + _PAUSE_S
    begin = time.perf_counter()
    while handle.is_running():
        now = time.perf_counter()
        k = min(last, int((now - begin) % round_s * FRAMES_PER_S))
        kept = [j for j in range(max(0, k - reach), k) if j % corner == 0]
        with handle.lock():
            place_bodies(data, animation.scenery, moments.moment(k))
            mujoco.mj_forward(model, data)
            if handle.user_scn is not None:
                handle.user_scn.ngeom = 0
                add_trails(handle.user_scn, np.asarray(trail[[*kept, k]]))
        handle.sync()
        time.sleep(max(0.0, 1 / FRAMES_PER_S - (time.perf_counter() - now)))


def _viewer() -> ModuleType:
    """Return `mujoco.viewer` after testing that a window can be opened."""
    reason = "no answer"
    try:
        result = subprocess.run(  # noqa: S603 (a constant script)
            [sys.executable, "-W", "ignore", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
        if result.returncode == 0:
            return importlib.import_module("mujoco.viewer")
        reason = (result.stderr.strip().splitlines() or [f"the test process ended with {result.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        reason = f"no answer within {_PROBE_LIMIT_S} s"
    except (ImportError, RuntimeError) as error:
        reason = str(error)
    raise TestudoError(
        f"the viewer cannot open a window here ({reason}); write a film with --film FILE.mp4, "
        "or a page with --html FILE.html"
    )
