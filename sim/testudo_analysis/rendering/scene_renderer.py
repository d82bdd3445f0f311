"""Off-screen rendering of a scene at given poses, on any available OpenGL backend."""

# mujoco is a binary module without stubs
# pyright: reportAttributeAccessIssue=false

import functools
import importlib
import os
import subprocess
import sys
from types import TracebackType
from typing import Self

import mujoco
import numpy as np

from testudo_analysis.rendering.animation import AnimationMoment, AnimationScene, check_moment
from testudo_analysis.rendering.scene_model import PALETTE, View, arena_camera, in_space, place_bodies, scene_model
from testudo_hardware.errors import TestudoError

_TRAIL_HEIGHT_M = 0.004
_TRAIL_WIDTH_PX = 3


class SceneRenderer:
    """Renders robots at given poses; a context manager.

    Raises:
        TestudoError: no off-screen OpenGL backend works.
    """

    def __init__(self, scenery: AnimationScene, size: tuple[int, int] = (960, 640), view: View = "oblique") -> None:
        """Build the scene; ``size`` is (width, height) in pixels."""
        self._scenery = scenery
        self._width, self._height = size
        module = importlib.import_module(f"mujoco.{working_backend()}")
        context = module.GLContext(self._width, self._height)
        context.make_current()
        self._context = context
        self._model = scene_model(scenery, size)
        self._data = mujoco.MjData(self._model)
        self._scene = mujoco.MjvScene(self._model, maxgeom=10_000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._drawing = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)
        self._camera = arena_camera(scenery.arena, self._width / self._height, view)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the OpenGL context."""
        self._drawing.free()
        self._context.free()

    def render(self, moment: AnimationMoment, trail_world: np.ndarray | None = None) -> np.ndarray:
        """Return the picture (height, width, 3) uint8.

        ``trail_world`` (K, N, D) [m] are past positions of the robots, oldest first.

        Raises:
            TestudoError: there is not one pose for each robot and box.
        """
        check_moment(moment, self._scenery)
        place_bodies(self._data, self._scenery, moment)
        mujoco.mj_forward(self._model, self._data)
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            mujoco.MjvOption(),
            None,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        if trail_world is not None:
            add_trails(self._scene, np.asarray(trail_world))
        picture = np.empty((self._height, self._width, 3), dtype=np.uint8)
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, self._scene, self._drawing)
        mujoco.mjr_readPixels(picture, None, area, self._drawing)
        return picture[::-1].copy()


def add_trails(scene: mujoco.MjvScene, trail_world: np.ndarray) -> None:
    """Add the trails (K, N, D) [m] of N robots as lines, up to the scene's maximum number of geoms."""
    count = len(trail_world) - 1
    for i in range(trail_world.shape[1]):
        for k in range(count):
            if scene.ngeom >= scene.maxgeom:
                return
            ends = [in_space(trail_world[k + end, i], _TRAIL_HEIGHT_M) for end in (0, 1)]
            colour = np.array([*PALETTE[i % len(PALETTE)], 0.15 + 0.55 * (k + 1) / count])
            geom = scene.geoms[scene.ngeom]
            line = mujoco.mjtGeom.mjGEOM_LINE
            mujoco.mjv_initGeom(geom, line, np.zeros(3), np.zeros(3), np.eye(3).ravel(), colour)
            mujoco.mjv_connector(geom, line, _TRAIL_WIDTH_PX, *ends)
            scene.ngeom += 1


BACKENDS = ("egl", "osmesa")

# a faulty driver can crash the process, so it is tested in another one
_PROBE = """
import importlib, mujoco, sys
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
"""
_PROBE_LIMIT_S = 60


@functools.cache
def working_backend() -> str:
    """Return the first working backend; if MUJOCO_GL names one, only that one is tested.

    Raises:
        TestudoError: none works; the text has the last line of each one's output.
    """
    # PyOpenGL uses one platform per process
    preferred = os.environ.get("PYOPENGL_PLATFORM") or os.environ.get("MUJOCO_GL", "")
    reasons = []
    for backend in (preferred,) if preferred in BACKENDS else BACKENDS:
        reason = _probe(backend)
        if reason is None:
            return backend
        reasons.append(f"{backend}: {reason}")
    raise TestudoError(
        f"rendering: no off-screen OpenGL backend works ({'; '.join(reasons)}); "
        "install the EGL or the OSMesa library of Mesa (packages libegl1 or libosmesa6)"
    )


def _probe(backend: str) -> str | None:
    """Return None if the backend works, else the reason."""
    settings = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
    try:
        result = subprocess.run(  # noqa: S603 (own interpreter, constant script)
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
