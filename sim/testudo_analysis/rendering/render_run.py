"""Renders a run, simulated or recorded, as a film, an animation or a picture."""

import importlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from testudo_analysis.rendering.animation import (
    Animation,
    AnimationScene,
    Trajectory,
    arena_around,
    interpolate_quaternions,
)
from testudo_analysis.rendering.scene_model import View
from testudo_analysis.rendering.scene_renderer import SceneRenderer
from testudo_analysis.rendering.task_entities import TaskEntities
from testudo_deploy.contract.contract import Signal
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_plant.worlds.robot_bodies import box_of
from testudo_runs.run_reader import RecordedRun, RunError, Track

ANIMATIONS = (".gif", ".webp")
PICTURES = (".png",)
VIDEOS = (".mp4",)


@dataclass(frozen=True)
class RenderOptions:
    """Size, view and speed of a rendered run."""

    width: int = 640  # [px]
    height: int = 448  # [px]
    view: View = "oblique"
    frames_per_s: float = 10.0  # frames per second
    speed: float = 2.0  # playback speed, as a multiple of real time
    trail_s: float = 4.0  # length of the trail [s] in an animation; a picture shows the whole trail


def check_film(path: Path, option: str = "rendering:") -> None:
    """Refuse an unsupported file type before long work starts.

    Raises:
        TestudoError: the file type is not supported.
    """
    kind, known = path.suffix.lower(), VIDEOS + ANIMATIONS + PICTURES
    if kind not in known:
        raise TestudoError(f"{option} {path}: found file type {kind!r}, expected one of {', '.join(known)}")


def render_run(animation: Animation, out_path: Path, options: RenderOptions | None = None) -> Path:
    """Draw a run into ``out_path``: .mp4, .gif or .webp for a film, .png for its last moment.

    ``options`` are size, view and speed.

    Returns:
        ``out_path``.

    Raises:
        TestudoError: the file type is not supported, OpenGL or the encoder is missing, or the file cannot be written.
    """
    options = options or RenderOptions()
    check_film(out_path)
    kind = out_path.suffix.lower()
    try:
        out_path.parent.mkdir(parents=True, exist_ok=True)
        if kind in PICTURES:
            Image.fromarray(_picture(animation, options)).save(out_path)
        elif kind in VIDEOS:
            write_video(_frames(animation, options), out_path, (options.width, options.height), options.frames_per_s)
        else:
            _save_animation(_frames(animation, options), out_path, round(1000 / options.frames_per_s))
    except OSError as error:
        raise TestudoError(f"rendering: {out_path}: cannot be written: {error.strerror or error}") from error
    return out_path


def _picture(animation: Animation, options: RenderOptions) -> np.ndarray:
    with SceneRenderer(animation.scenery, (options.width, options.height), options.view) as renderer:
        moments = animation.trajectory.resampled(options.speed / options.frames_per_s)
        return renderer.render(moments.moment(-1), moments.position_world)


def _frames(animation: Animation, options: RenderOptions) -> Iterator[np.ndarray]:
    """Yield the frames (height, width, 3) uint8 of a film."""
    frame_s = options.speed / options.frames_per_s
    moments = animation.trajectory.resampled(frame_s)
    reach = max(1, round(options.trail_s / frame_s))
    # at most 40 corners per trail are visible, at any frame rate
    corner = max(1, reach // 40)
    with SceneRenderer(animation.scenery, (options.width, options.height), options.view) as renderer:
        for k in range(len(moments.time_s)):
            kept = [j for j in range(max(0, k - reach), k) if j % corner == 0]
            yield renderer.render(moments.moment(k), moments.position_world[[*kept, k]])


def _save_animation(frames: Iterator[np.ndarray], out_path: Path, frame_ms: int) -> None:
    images = [Image.fromarray(frame) for frame in frames]
    if out_path.suffix.lower() == ".gif":
        # one palette for all frames, from eight of them: no flicker, a small file, and no goal loses its colour
        shown = np.concatenate([np.asarray(image) for image in images[:: max(1, len(images) // 8)]])
        palette = Image.fromarray(shown).quantize(colors=256)
        images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    images[0].save(out_path, save_all=True, append_images=images[1:], duration=frame_ms, loop=0)


_QUALITY = "20"  # constant rate factor of H.264: lower means better quality, 18 to 23 is usual
_LIMIT_S = 60


def write_video(frames: Iterable[np.ndarray], out_path: Path, size: tuple[int, int], frames_per_s: float) -> None:
    """Write frames (height, width, 3) uint8 of ``size`` (width, height) as .mp4 (H.264).

    Raises:
        TestudoError: the encoder is not installed, or fails.
    """
    width, height = size
    command = [
        _encoder(out_path), "-y", "-loglevel", "error", "-f", "rawvideo", "-pixel_format", "rgb24",
        "-video_size", f"{width}x{height}", "-framerate", f"{frames_per_s:g}", "-i", "-",
        "-c:v", "libx264", "-crf", _QUALITY, "-pix_fmt", "yuv420p",
        # chroma subsampling needs even sides
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-movflags", "+faststart", str(out_path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as encoder:  # noqa: S603
        assert encoder.stdin is not None  # noqa: S101 -- a pipe was requested
        try:
            for frame in frames:
                encoder.stdin.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            pass  # the encoder ended early; its message is reported below
        except BaseException:
            encoder.kill()
            raise
        _, message = encoder.communicate(timeout=_LIMIT_S)
    if encoder.returncode:
        lines = message.decode(errors="replace").strip().splitlines() or [f"status {encoder.returncode}"]
        raise TestudoError(f"rendering: {out_path}: the video encoder failed: {lines[-1]}")


def _encoder(out_path: Path) -> str:
    """Return the path of ffmpeg; only .mp4 needs it."""
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise TestudoError(
            f"rendering: {out_path}: found no encoder for .mp4 ({error}); install imageio-ffmpeg, or write a .gif"
        ) from error


_SAMPLES_PER_S = 30.0


def recorded_animation(
    run: RecordedRun, arena: Arena | None, title: str | None = None, signals: Sequence[Signal] = ()
) -> Animation:
    """Return the ground-truth motion of a run as an animation, or the odometry where no truth is recorded.

    Bodies are where they were measured, and left out if they were not. Without an ``arena`` walls are drawn around the
    paths; ``title`` is by default the name of the folder. Of the ``signals`` of the policy those that place entities
    of the task are drawn, as the task node said them.

    Raises:
        RunError: there is no time with poses of all robots and bodies.
    """
    tracks = [run.located(name) for name in run.robots]
    measured = [body for body in run.fleet.bodies if len(run.bodies[body.name].stamp_s)]
    bodies = [run.bodies[body.name] for body in measured]
    begin = max((track.stamp_s[0] for track in (*tracks, *bodies) if len(track.stamp_s)), default=0.0)
    end = min(track.stamp_s[-1] if len(track.stamp_s) else begin for track in (*tracks, *bodies))
    if begin >= end:
        raise RunError(f"{run.folder}: found no time with recorded poses of all robots and bodies, expected one")
    times = np.arange(begin, end, 1 / _SAMPLES_PER_S)
    position, yaw = _poses(times, tracks)
    robots, goals = [run.fleet.robot(name) for name in run.robots], _goals_world(run.fleet)
    quaternions = None
    found = [
        interpolate_quaternions(times, track.stamp_s, track.quaternion_xyzw)
        for track in tracks
        if track.quaternion_xyzw is not None
    ]
    if len(found) == len(tracks):
        quaternions = np.stack(found, axis=1)
    specs, boxes = tuple(robot.spec for robot in robots), tuple(map(box_of, measured))
    entities = TaskEntities.of(signals, [body.name for body in run.fleet.bodies], specs[0].body_radius_m)
    places = entities.recorded_world(run, times)
    pushed = _with_entities(_poses(times, bodies) if bodies else None, places)
    drawn = boxes if places is None else (*boxes, *entities.boxes)
    trajectory = Trajectory(times - begin, position, yaw, *pushed, quaternion_xyzw=quaternions)
    scenery = AnimationScene(specs, arena or arena_around(trajectory, goals), goals, drawn)
    return Animation(scenery, trajectory, title or run.folder.resolve().name)


def film_run(animation: Animation, out_path: Path, tell: Callable[[str], None]) -> Path | None:
    """Render a film; if that fails, pass the reason to ``tell`` and return None."""
    try:
        return render_run(animation, out_path)
    except TestudoError as error:
        tell(f"no film: {error}")
        return None


def _poses(times: np.ndarray, tracks: Sequence[Track]) -> tuple[np.ndarray, np.ndarray]:
    """Return the interpolated positions (T, N, D) [m] and yaws (T, N) [rad] of tracks."""
    position, yaw = zip(*(track.at(times) for track in tracks), strict=True)
    return np.stack(position, axis=1), np.stack(yaw, axis=1)


def _with_entities(
    bodies: tuple[np.ndarray, np.ndarray] | None, places_world: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return positions (T, B, 2) [m] and yaws (T, B) of bodies and entities together; None without any."""
    if places_world is None:
        return bodies or (None, None)
    yaw = np.zeros(places_world.shape[:2])
    if bodies is None:
        return places_world, yaw
    return np.concatenate([bodies[0], places_world], axis=1), np.concatenate([bodies[1], yaw], axis=1)


def _goals_world(fleet: Fleet) -> np.ndarray | None:
    """Return the goals (N, D) [m] of the robots, or N times that of the body that they push; None without goals."""
    common = np.array((fleet.task or {}).get("goal_world", ()), float)
    if fleet.bodies and common.shape == (fleet.robots[0].spec.dimension,):
        return np.tile(common, (len(fleet.robots), 1))
    has_goals = fleet.task is None or any(robot.goal_world != robot.initial_position_world for robot in fleet.robots)
    return np.array([robot.goal_world for robot in fleet.robots]) if has_goals else None
