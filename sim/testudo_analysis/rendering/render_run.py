"""A run as a film, an animation or a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from testudo_analysis.rendering.animation import Animation
from testudo_analysis.rendering.scene_model import View
from testudo_analysis.rendering.scene_renderer import SceneRenderer
from testudo_analysis.rendering.video import write_video
from testudo_hardware.errors import TestudoError

ANIMATIONS = (".gif", ".webp")
PICTURES = (".png",)
VIDEOS = (".mp4",)


@dataclass(frozen=True)
class RenderOptions:
    """How a run is drawn."""

    width: int = 640
    """[pixels]."""
    height: int = 448
    """[pixels]."""
    view: View = "oblique"
    frames_per_s: float = 10.0
    """Frames shown each second."""
    speed: float = 2.0
    """Times real time."""
    trail_s: float = 4.0
    """Length of the trail in an animation; a picture shows the whole of it."""


def check_film(path: Path, option: str = "rendering:") -> None:
    """Refuse a file of an unknown kind, before the long work begins.

    Raises:
        TestudoError: another ending than those that can be written.
    """
    kind, known = path.suffix.lower(), VIDEOS + ANIMATIONS + PICTURES
    if kind not in known:
        raise TestudoError(f"{option} {path}: found the ending {kind!r}, expected one of {', '.join(known)}")


def render_run(show: Animation, out_path: Path, options: RenderOptions | None = None) -> Path:
    """Draw a run into ``out_path``: .mp4, .gif or .webp for a film, .png for its last moment.

    Args:
        show: who was where.
        out_path: the file to write.
        options: size, view and speed.

    Returns:
        ``out_path``.

    Raises:
        TestudoError: another ending, no OpenGL, no encoder, or the file cannot be written.
    """
    options = options or RenderOptions()
    check_film(out_path)
    kind = out_path.suffix.lower()
    try:
        out_path.parent.mkdir(parents=True, exist_ok=True)
        if kind in PICTURES:
            Image.fromarray(_picture(show, options)).save(out_path)
        elif kind in VIDEOS:
            write_video(_frames(show, options), out_path, (options.width, options.height), options.frames_per_s)
        else:
            _save_animation(_frames(show, options), out_path, round(1000 / options.frames_per_s))
    except OSError as error:
        raise TestudoError(f"rendering: {out_path}: cannot be written: {error.strerror or error}") from error
    return out_path


def _picture(show: Animation, options: RenderOptions) -> np.ndarray:
    with SceneRenderer(show.scenery, (options.width, options.height), options.view) as renderer:
        moments = show.trajectory.resampled(options.speed / options.frames_per_s)
        return renderer.render(moments.moment(-1), moments.position_world)


def _frames(show: Animation, options: RenderOptions) -> Iterator[np.ndarray]:
    """Yield the pictures (height, width, 3) uint8 of a film."""
    frame_s = options.speed / options.frames_per_s
    moments = show.trajectory.resampled(frame_s)
    reach = max(1, round(options.trail_s / frame_s))
    # a trail needs no more corners than the eye sees, however smooth the film is
    corner = max(1, reach // 40)
    with SceneRenderer(show.scenery, (options.width, options.height), options.view) as renderer:
        for k in range(len(moments.time_s)):
            kept = [j for j in range(max(0, k - reach), k) if j % corner == 0]
            yield renderer.render(moments.moment(k), moments.position_world[[*kept, k]])


def _save_animation(frames: Iterator[np.ndarray], out_path: Path, frame_ms: int) -> None:
    images = [Image.fromarray(frame) for frame in frames]
    if out_path.suffix.lower() == ".gif":
        # one palette for all frames: no flicker, and the frames differ only where robots move
        palette = images[-1].quantize(colors=128)
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    images[0].save(out_path, save_all=True, append_images=images[1:], duration=frame_ms, loop=0)
