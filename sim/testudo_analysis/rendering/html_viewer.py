"""A run as one HTML page to share: brax's viewer, with all that it needs inside the file.

brax's own page (`brax.io.html`) loads three.js, a panel and its viewer from the network. This one
holds brax's viewer and its description of the scene (`brax.io.json`) as they are installed here,
three.js as trimesh ships it, and two small stand-ins for what is in neither: camera control and panel.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
import re
import warnings
import zlib
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from testudo_analysis.rendering.animation import Animation
from testudo_analysis.rendering.scene_model import FLOOR_NAME, FLOOR_RGB, arena_camera, body_poses, scene_spec
from testudo_hardware.errors import TestudoError

# brax imports mujoco.mjx, which prints that warp is missing; nothing here needs it
with contextlib.redirect_stdout(io.StringIO()):
    from brax.base import State, Transform
    from brax.io import json as brax_json
    from brax.io import mjcf

FRAMES_PER_S = 15.0
"""Poses stored for each second; the page interpolates."""

_DIGITS = 4  # of a metre and of a quaternion
_PARTS = ("animator", "selector", "system", "viewer")
_THREE = re.compile(r'/\*\*\s*\*\s*@license.*?defineProperty\(\w+,"__esModule",\{value:!0\}\)\}\)\);', re.DOTALL)
_ASPECT = 1.6


def write_page(show: Animation, out_path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        TestudoError: the installed brax or trimesh is not as expected, or the file cannot be written.
    """
    template = _own("view.html")
    camera = arena_camera(show.scenery.arena, _ASPECT, "oblique")
    fields = {
        "title": escape(show.title),
        "facts": escape(f"{len(show.scenery.specs)} robots, {show.trajectory.duration_s:.1f} s"),
        "three": _three(),
        "imports": json.dumps({"imports": _modules()}),
        "camera": json.dumps(_eye(camera)),
        "system": base64.b64encode(zlib.compress(system_json(show).encode(), 9)).decode(),
    }
    text = re.sub(r"\{\{ (\w+) \}\}", lambda found: fields[found[1]], template)
    try:
        out_path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"{out_path}: cannot be written: {error.strerror}") from error
    return out_path


def system_json(show: Animation) -> str:
    """Return scene and motion as brax's viewer reads them."""
    moments = show.trajectory.resampled(1 / FRAMES_PER_S)
    model = _page_model(show)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that brax's physics is no longer maintained: it is not used
        system = mjcf.load_model(model)
    states = []
    for k in range(len(moments.time_s)):
        centre, turn = (np.round(part, _DIGITS) for part in body_poses(show.scenery, moments.moment(k)))
        states.append(State(q=None, qd=None, x=Transform(pos=centre, rot=turn), xd=None, contact=None))
    return brax_json.dumps(system, states)


def _page_model(show: Animation) -> mujoco.MjModel:
    """Return the scene as brax's viewer shows it right."""
    scene = scene_spec(show.scenery, free=True)
    scene.option.timestep = 1 / FRAMES_PER_S  # the viewer's time from state to state
    for geom in list(scene.geoms):
        if geom.name == FLOOR_NAME:
            # the viewer takes half sides for whole ones, and knows no textures
            geom.material, geom.size, geom.rgba = "", [2 * geom.size[0], 2 * geom.size[1], 1], [*FLOOR_RGB, 1]
        if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE and geom.rgba[3] < 0.5:
            scene.delete(geom)  # the glass around a goal in space would hide the robot that is there
            continue
        alpha = geom.rgba[3]  # which the viewer does not know: mixed with the floor
        geom.rgba = [
            *(alpha * part + (1 - alpha) * floor for part, floor in zip(geom.rgba[:3], FLOOR_RGB, strict=True)),
            1,
        ]
    return scene.compile()


def _eye(camera: mujoco.MjvCamera) -> dict[str, Any]:
    """Return where the camera is and what it looks at [m]."""
    azimuth, elevation = np.radians([camera.azimuth, camera.elevation])
    ahead = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    target = np.array(camera.lookat)
    place = target - camera.distance * ahead
    return {"position": place.tolist(), "target": target.tolist(), "aspect": _ASPECT}


@cache
def _modules() -> dict[str, str]:
    """Return the scripts of the page by the name under which they import each other, as data addresses."""
    folder = resources.files("brax") / "visualizer" / "js"
    try:
        parts = {f"brax/{name}": (folder / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS}
    except OSError as error:
        raise TestudoError(f"the installed brax has no viewer for pages ({error}); install brax 0.14") from error
    parts = {name: re.sub(r"from '\./(\w+)\.js'", r"from 'brax/\1'", text) for name, text in parts.items()}
    parts["three/addons/controls/OrbitControls.js"] = _own("orbit.js")
    parts["lilgui"] = _own("panel.js")
    used = sorted(set(re.findall(r"\bTHREE\.([A-Za-z]\w*)", "".join(parts.values()))))
    parts["three"] = f"export const {{{', '.join(used)}}} = globalThis.THREE;"
    return {
        name: f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}" for name, text in parts.items()
    }


@cache
def _three() -> str:
    """Return three.js, with its licence at the head, as trimesh ships it for its own viewer."""
    with contextlib.suppress(ImportError, OSError, KeyError, ValueError):
        found = _THREE.search(_trimesh_page())
        if found is not None:
            return found[0]
    raise TestudoError("the installed trimesh holds no three.js, which pages need; install trimesh 5")


def _trimesh_page() -> str:
    packed: Any = importlib.import_module("trimesh.resources").get_bytes("templates/viewer.zip")
    opened = importlib.import_module("zipfile").ZipFile(io.BytesIO(packed))
    return opened.read("viewer.html.template").decode("utf-8")


def _own(name: str) -> str:
    return (resources.files("testudo_analysis.rendering") / name).read_text(encoding="utf-8")
