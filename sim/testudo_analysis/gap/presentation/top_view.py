"""The animated view from above: real robots and replayed ones, which restart on the real pose every two seconds."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from testudo_analysis.replay.batched_rollout import rollout
from testudo_analysis.replay.rollout_inputs import RolloutStarts, timeline_of
from testudo_analysis.report.html_markup import paragraph
from testudo_analysis.report.plot_style import robot_colour
from testudo_hardware.motion.motion_model import motion_model
from testudo_hardware.motion.motion_state import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot

EVERY_S, STEP_S = 2.0, 0.1
_MOST_FRAMES = 9_000
_NONE = -32768
_PER_M = 100.0  # packed units of height per metre
_STYLE = (
    "#topview svg{display:block;width:100%;max-height:620px;background:#fbfcfd;border:1px solid var(--line);"
    "border-radius:8px}#topview .bar{display:flex;gap:12px;align-items:center;margin:10px 0}"
    "#topview input{flex:1;accent-color:var(--accent)}#topview button,#topview select{font:inherit;padding:3px 14px;"
    "border:1px solid var(--line);border-radius:7px;background:#fff;color:var(--ink)}"
    "#topview output{min-width:64px;text-align:right;font-variant-numeric:tabular-nums}"
    "#topview path{fill:none;vector-effect:non-scaling-stroke}#topview .trail{stroke-width:2.2;opacity:.45}"
    "#topview .ghost-trail{stroke-width:1.4;stroke-dasharray:4 3}"
    "#topview circle,#topview line{vector-effect:non-scaling-stroke;stroke-width:1.6}"
    "#topview .ghost circle{stroke-dasharray:4 3}#topview text{font-weight:600}"
    "#topview .grid{stroke:var(--line);stroke-width:1}"
)


@dataclass(frozen=True)
class ReplayedCourse:
    """Recorded and replayed poses of one robot at common times."""

    robot: str
    time_s: np.ndarray  # (T,) [s], `STEP_S` apart
    real: np.ndarray  # (T, D + 1): position and yaw; NaN if not recorded
    replayed: np.ndarray  # (T, D + 1): NaN if not predicted
    restart: np.ndarray  # (T,) bool: the model restarts on the real pose


def courses(robots: Sequence[AlignedRobot], spec: RobotSpec) -> list[ReplayedCourse]:
    """Return the real and the replayed course of each robot of one type, at the same times."""
    begin = min(robot.trajectory.stamp_s[0] for robot in robots)
    end = max(robot.trajectory.stamp_s[-1] for robot in robots)
    times = np.arange(begin, end, STEP_S)
    return [_course(robot, spec, times) for robot in robots]


def _course(robot: AlignedRobot, spec: RobotSpec, times: np.ndarray) -> ReplayedCourse:
    track, model = robot.trajectory, motion_model(spec)
    timeline = timeline_of(model, robot.pieces)
    position, yaw, velocity = track.at(times)
    real = np.where(track.observed(times, 2 * STEP_S)[:, None], np.column_stack([position, yaw]), np.nan)
    steps = round(EVERY_S / STEP_S)
    starts = np.arange(0, len(times), steps)
    now, moving = np.nan_to_num(real[starts]).T, velocity[starts].T
    state = MotionState(now[: spec.dimension], now[spec.dimension], moving)
    index = starts + np.arange(steps)[:, None]
    ends = times[starts] + STEP_S * np.arange(steps)[:, None]
    first, last = timeline.acting(times[starts]), timeline.acting(ends)
    (found,) = rollout(model, [timeline], [RolloutStarts(state, times[starts], ends, first, last)], exact=True)
    good = (
        (index < len(times))
        & np.isfinite(real[starts]).all(axis=1)
        & (timeline.all_known(first, last) | (ends == times[starts]))
    )
    replayed = np.full_like(real, np.nan)
    replayed[index[good]] = np.concatenate([found.position_world, found.yaw[None]])[:, good].T
    restart = np.zeros(len(times), bool)
    restart[starts] = True
    return ReplayedCourse(robot.name, times, real, replayed, restart)


def top_view(courses: Sequence[ReplayedCourse], radius_m: float) -> str:
    """Return the player as self-contained markup with the poses.

    ``courses`` are those of all robots, at the same times; ``radius_m`` is that of a body.
    """
    times = courses[0].time_s
    stride = max(1, -(-len(times) // _MOST_FRAMES))
    picked = np.arange(0, len(times), stride)
    planes = np.stack(
        [np.concatenate([_plane(course.real), _plane(course.replayed)], axis=1)[picked] for course in courses], axis=1
    )
    size = np.nanmax(planes, axis=(0, 1)) - np.nanmin(planes, axis=(0, 1))
    lying = bool(size[1] > 1.2 * size[0])
    if lying:  # a page is wide
        planes = planes[..., [1, 0, 2, 4, 3, 5]] * np.array([-1, 1, 1, -1, 1, 1]) + np.array([0, 0, 90, 0, 0, 90])
    seen = planes[..., [0, 1]][np.isfinite(planes[..., 0])]
    low, high = seen.min(axis=0), seen.max(axis=0)
    scale = 30_000 / max(float(np.abs(seen).max()), 1.0)
    numbers = planes * np.array([scale, scale, 100.0] * 2)
    heights = _heights(courses, picked)
    if heights is not None:
        numbers = np.concatenate([numbers, _PER_M * heights], axis=-1)
    whole = np.clip(np.nan_to_num(np.rint(numbers)), -32767, 32767)
    packed = np.where(np.isfinite(numbers), whole, _NONE).astype("<i2")
    room = 2.5 * radius_m
    off = np.nan_to_num(np.linalg.norm(planes[..., 3:5] - planes[..., :2], axis=-1)).sum(axis=1)
    letter = 0.02 * float(max(high - low) + 2 * room)
    data = {
        "frames": len(picked),
        "columns": numbers.shape[-1],
        "height": _PER_M,
        "step": STEP_S * stride,
        "begin": float(times[0]),
        "scale": scale,
        "radius": radius_m,
        "first": int(np.argmax(off)),
        "letter": letter,
        "right": float(high[0] + room),
        "robots": [{"name": c.robot, "colour": robot_colour(k)} for k, c in enumerate(courses)],
        "restart": [int(flag) for flag in np.add.reduceat(courses[0].restart, picked) > 0],
        "poses": base64.b64encode(packed.tobytes()).decode(),
    }
    return _markup(data, low - room, high + room, lying=lying, flies=heights is not None)


def _markup(data: dict[str, Any], low: np.ndarray, high: np.ndarray, *, lying: bool, flies: bool) -> str:
    """Return the player of the data as markup; ``low`` and ``high`` (2,) [m] bound the view."""
    box = (low[0], -high[1], high[0] - low[0], high[1] - low[1])
    script = (resources.files("testudo_analysis.gap.presentation") / "top_view.js").read_text(encoding="utf-8")
    speeds = "".join(f'<option value="{k}"{" selected" if k == 1 else ""}>{k} x</option>' for k in (1, 2, 5, 20))
    held = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<style>{_STYLE}</style><div id="topview"><svg viewBox="{" ".join(f"{v:.4g}" for v in box)}" role="img" '
        f'aria-label="robots from above">{_grid(low, high)}</svg><div class="bar"><button>Play</button>'
        f'<input type="range" min="0" value="0" aria-label="time"><output></output><select aria-label="speed">{speeds}'
        "</select></div></div>"
        f'<script type="application/json" id="topview-data">{held}</script>'
        f"<script>{script}</script>"
        + paragraph(
            "Discs are the real robots, dashed circles the model under the same commands, which restarts on the real "
            f"pose every {EVERY_S:g} s. Grid lines are 1 m apart"
            + ("; x points up." if lying else ".")
            + ("" if not flies else " The number beside a name is the height [m], in brackets that of the model.")
        )
    )


def _heights(courses: Sequence[ReplayedCourse], picked: np.ndarray) -> np.ndarray | None:
    """Return the heights (T, N, 2) [m], real and replayed, of robots that fly; None for those on the ground."""
    if courses[0].real.shape[1] < 4:
        return None
    return np.stack([np.column_stack([course.real[:, 2], course.replayed[:, 2]])[picked] for course in courses], axis=1)


def _plane(poses: np.ndarray) -> np.ndarray:
    """Return x, y [m] and yaw [deg, -180 to 180] of poses (T, D + 1)."""
    degrees = np.degrees(np.arctan2(np.sin(poses[:, -1]), np.cos(poses[:, -1])))
    return np.column_stack([poses[:, 0], poses[:, 1], degrees])


def _grid(low: np.ndarray, high: np.ndarray) -> str:
    lines = [f"M{x} {-low[1]:.3f}V{-high[1]:.3f}" for x in range(int(np.ceil(low[0])), int(np.floor(high[0])) + 1)]
    lines += [f"M{low[0]:.3f} {-y}H{high[0]:.3f}" for y in range(int(np.ceil(low[1])), int(np.floor(high[1])) + 1)]
    return f'<path class="grid" d="{"".join(lines)}"/>'
