"""Draws the scene of a run at given poses, without physics."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import mujoco
import numpy as np

from testudo_analysis.rendering.animation import AnimationMoment, AnimationScene, check_moment
from testudo_analysis.rendering.offscreen import open_context
from testudo_analysis.rendering.scene_model import PALETTE, View, arena_camera, in_space, place_bodies, scene_model

_TRAIL_HEIGHT_M = 0.004
_TRAIL_WIDTH_PX = 3


class SceneRenderer:
    """Draws robots at given poses; a context manager.

    Raises:
        TestudoError: no off-screen OpenGL works here.
    """

    def __init__(self, scenery: AnimationScene, size: tuple[int, int] = (960, 640), view: View = "oblique") -> None:
        """Build the scene; ``size`` is (width, height) in pixels."""
        self._scenery = scenery
        self._width, self._height = size
        self._context = open_context(self._width, self._height)
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
        """Give the drawing context back."""
        self._drawing.free()
        self._context.free()

    def render(self, moment: AnimationMoment, trail_world: np.ndarray | None = None) -> np.ndarray:
        """Return the picture (height, width, 3) uint8.

        Args:
            moment: where everything is.
            trail_world: (K, N, D) [m], where the robots have been, oldest first.

        Raises:
            TestudoError: not one pose for each robot and box.
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
    """Add the ways (K, N, D) [m] of N robots as lines, as far as the scene has room."""
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
