"""A run as one self-contained HTML page with brax's viewer.

brax's own page (`brax.io.html`) loads three.js, a panel and its viewer from the network. This page embeds
brax's viewer and scene description (`brax.io.json`) from the installed package, three.js from trimesh, and
two small replacements for the camera control and the panel.
"""

# mujoco is a binary module without stubs
# pyright: reportAttributeAccessIssue=false

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

# brax imports mujoco.mjx, which prints that warp is missing
with contextlib.redirect_stdout(io.StringIO()):
    from brax.base import State, Transform
    from brax.io import json as brax_json
    from brax.io import mjcf

FRAMES_PER_S = 15.0
"""Stored poses per second; the page interpolates."""

_DIGITS = 4  # decimals of positions [m] and quaternions
_PARTS = ("animator", "selector", "system", "viewer")
_THREE = re.compile(r'/\*\*\s*\*\s*@license.*?defineProperty\(\w+,"__esModule",\{value:!0\}\)\}\)\);', re.DOTALL)
_ASPECT = 1.6


def write_page(animation: Animation, out_path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        TestudoError: the installed brax or trimesh lacks a script, or the file cannot be written.
    """
    template = _read_asset("view.html")
    camera = arena_camera(animation.scenery.arena, _ASPECT, "oblique")
    moments = animation.trajectory.resampled(1 / FRAMES_PER_S)
    # the scene is adapted to the limits of brax's viewer
    scene = scene_spec(animation.scenery, free=True)
    scene.option.timestep = 1 / FRAMES_PER_S  # time between two states in the viewer
    for geom in list(scene.geoms):
        if geom.name == FLOOR_NAME:
            # the viewer reads half sizes as sizes, and supports no textures
            geom.material, geom.size, geom.rgba = "", [2 * geom.size[0], 2 * geom.size[1], 1], [*FLOOR_RGB, 1]
        if geom.type == mujoco.mjtGeom.mjGEOM_SPHERE and geom.rgba[3] < 0.5:
            scene.delete(geom)  # a transparent ball around a goal would hide the robot there
            continue
        alpha = geom.rgba[3]  # not supported by the viewer: mixed with the floor's colour
        geom.rgba = [
            *(alpha * part + (1 - alpha) * floor for part, floor in zip(geom.rgba[:3], FLOOR_RGB, strict=True)),
            1,
        ]
    model = scene.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # brax warns that its physics is unmaintained; it is not used here
        system = mjcf.load_model(model)
    states = []
    for k in range(len(moments.time_s)):
        centre, rotation = (np.round(part, _DIGITS) for part in body_poses(animation.scenery, moments.moment(k)))
        parts: dict[str, Any] = {"pos": centre, "rot": rotation}  # arrays of NumPy serve
        unused: dict[str, Any] = dict.fromkeys(("q", "qd", "xd", "contact"))
        states.append(State(x=Transform(**parts), **unused))
    # position and target of the camera [m]
    azimuth, elevation = np.radians([camera.azimuth, camera.elevation])
    ahead = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    target = np.array(camera.lookat)
    position = target - camera.distance * ahead
    fields = {
        "title": escape(animation.title),
        "facts": escape(f"{len(animation.scenery.specs)} robots, {animation.trajectory.duration_s:.1f} s"),
        "three": _three(),
        "imports": json.dumps({"imports": _modules()}),
        "camera": json.dumps({"position": position.tolist(), "target": target.tolist(), "aspect": _ASPECT}),
        "system": base64.b64encode(zlib.compress(brax_json.dumps(system, states).encode(), 9)).decode(),
    }
    text = re.sub(r"\{\{ (\w+) \}\}", lambda found: fields[found[1]], template)
    try:
        out_path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"{out_path}: cannot be written: {error.strerror}") from error
    return out_path


@cache
def _modules() -> dict[str, str]:
    """Return the page's scripts by module name, as data URIs."""
    folder = resources.files("brax") / "visualizer" / "js"
    try:
        parts = {f"brax/{name}": (folder / f"{name}.js").read_text(encoding="utf-8") for name in _PARTS}
    except OSError as error:
        raise TestudoError(f"the installed brax has no HTML viewer ({error}); install brax 0.14") from error
    parts = {name: re.sub(r"from '\./(\w+)\.js'", r"from 'brax/\1'", text) for name, text in parts.items()}
    parts["three/addons/controls/OrbitControls.js"] = _read_asset("orbit.js")
    parts["lilgui"] = _read_asset("panel.js")
    used = sorted(set(re.findall(r"\bTHREE\.([A-Za-z]\w*)", "".join(parts.values()))))
    parts["three"] = f"export const {{{', '.join(used)}}} = globalThis.THREE;"
    return {
        name: f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}" for name, text in parts.items()
    }


@cache
def _three() -> str:
    """Return three.js with its licence, from the viewer of trimesh."""
    with contextlib.suppress(ImportError, OSError, KeyError, ValueError):
        found = _THREE.search(_trimesh_page())
        if found is not None:
            return found[0]
    raise TestudoError("found no three.js in the installed trimesh, which pages need; install trimesh 5")


def _trimesh_page() -> str:
    packed: Any = importlib.import_module("trimesh.resources").get_bytes("templates/viewer.zip")
    opened = importlib.import_module("zipfile").ZipFile(io.BytesIO(packed))
    return opened.read("viewer.html.template").decode("utf-8")


def _read_asset(name: str) -> str:
    return (resources.files("testudo_analysis.rendering") / name).read_text(encoding="utf-8")
