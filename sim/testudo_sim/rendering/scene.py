"""Draws the scene of a run at given poses, without physics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import mujoco
import numpy as np

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.rendering.model import PALETTE, View, arena_camera, in_space, scene_model
from testudo_sim.rendering.offscreen import open_context

_TRAIL_HEIGHT_M = 0.004
_TRAIL_WIDTH_PX = 3


class SceneRenderer:
    """Draws robots at given poses; a context manager.

    Raises:
        TestudoError: no off-screen OpenGL works here.
    """

    def __init__(
        self,
        specs: Sequence[RobotSpec],
        arena: Arena,
        goals_world: np.ndarray | None = None,
        size: tuple[int, int] = (960, 640),
        view: View = "oblique",
    ) -> None:
        """Build the scene; ``goals_world`` is (N, D) [m], ``size`` (width, height) in pixels."""
        self._specs = tuple(specs)
        self._width, self._height = size
        self._context = open_context(self._width, self._height)
        self._model = scene_model(self._specs, arena, goals_world, size)
        self._data = mujoco.MjData(self._model)
        self._scene = mujoco.MjvScene(self._model, maxgeom=10_000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        self._drawing = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawing)
        self._camera = arena_camera(arena, self._width / self._height, view)

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
        """Give the drawing context back."""
        self._drawing.free()
        self._context.free()

    def render(
        self, position_world: np.ndarray, yaw: np.ndarray, trail_world: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the picture (height, width, 3) uint8.

        Args:
            position_world: (N, D) [m].
            yaw: (N,) [rad].
            trail_world: (K, N, D) [m], where the robots have been, oldest first.

        Raises:
            TestudoError: not one pose for each robot.
        """
        if len(position_world) != len(self._specs) or len(yaw) != len(self._specs):
            raise TestudoError(
                f"rendering: found {len(position_world)} positions and {len(yaw)} headings, "
                f"expected one for each of {len(self._specs)} robots"
            )
        for i, spec in enumerate(self._specs):
            self._data.mocap_pos[i] = in_space(position_world[i], spec.body_height_m / 2)
            self._data.mocap_quat[i] = (math.cos(yaw[i] / 2), 0, 0, math.sin(yaw[i] / 2))
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
            self._add_trails(np.asarray(trail_world))
        picture = np.empty((self._height, self._width, 3), dtype=np.uint8)
        area = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(area, self._scene, self._drawing)
        mujoco.mjr_readPixels(picture, None, area, self._drawing)
        return picture[::-1].copy()

    def _add_trails(self, trail_world: np.ndarray) -> None:
        count = len(trail_world) - 1
        for i in range(len(self._specs)):
            for k in range(count):
                if self._scene.ngeom >= self._scene.maxgeom:
                    return
                ends = [in_space(trail_world[k + end, i], _TRAIL_HEIGHT_M) for end in (0, 1)]
                colour = np.array([*PALETTE[i % len(PALETTE)], 0.15 + 0.55 * (k + 1) / count])
                geom = self._scene.geoms[self._scene.ngeom]
                line = mujoco.mjtGeom.mjGEOM_LINE
                mujoco.mjv_initGeom(geom, line, np.zeros(3), np.zeros(3), np.eye(3).ravel(), colour)
                mujoco.mjv_connector(geom, line, _TRAIL_WIDTH_PX, *ends)
                self._scene.ngeom += 1
