"""Open-loop replay: the sent commands through the training model, compared with the recorded motion.

The model runs from every recorded pose without feedback; its deviation after a horizon is the gap. All starts of all
robots are one batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from testudo_analysis.replay.batched_rollout import rollout
from testudo_analysis.replay.gap_names import ALL_ROBOTS, Reference
from testudo_analysis.replay.rollout_inputs import OpenLoopWindows, command_timeline, pick_windows
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import Trajectory, prepare_run
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.run_reader import RecordedRun, ticks_in_order

HORIZONS_S = (0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class OpenLoopErrors:
    """Quantiles of the absolute error, in the unit of its channel."""

    median: float
    p90: float
    p99: float
    count: int


@dataclass(frozen=True)
class GapRow:
    """The gap of one robot in one channel after one horizon."""

    robot: str
    channel: str  # x, y (and z), position, yaw or speed
    unit: str
    horizon_s: float
    errors: OpenLoopErrors
    travel_m: float  # median distance [m] that the robot travelled within the horizon, for comparison


@dataclass(frozen=True)
class OpenLoopGap:
    """Deviation of the training model from a run."""

    reference: str  # reference of the comparison: truth or odometry; of imported runs pose or odometry
    robot_model: str
    velocity_lag_s: float
    command_delay_s: float
    horizons_s: tuple[float, ...]
    rows: tuple[GapRow, ...]

    @classmethod
    def of(cls, reference: str, spec: RobotSpec, horizons_s: Sequence[float], rows: Sequence[GapRow]) -> Self:
        """Return the gap of robots of one specification."""
        return cls(reference, spec.name, spec.velocity_lag_s, spec.command_delay_s, tuple(horizons_s), tuple(rows))

    def find(self, channel: str, horizon_s: float, robot: str = ALL_ROBOTS) -> GapRow | None:
        """Return one row; None if the run is shorter than the horizon, or a name is unknown."""
        wanted = (robot, channel, horizon_s)
        return next((r for r in self.rows if (r.robot, r.channel, r.horizon_s) == wanted), None)

    @property
    def robots(self) -> tuple[str, ...]:
        """Return the robots that have rows, the pooled one last."""
        return tuple(dict.fromkeys(row.robot for row in self.rows))

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the channels in order."""
        return tuple(dict.fromkeys(row.channel for row in self.rows))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"rows": [asdict(row) for row in self.rows]}


def open_loop(
    run: RecordedRun,
    spec: RobotSpec,
    *,
    reference: Reference = "truth",
    horizons_s: Sequence[float] = HORIZONS_S,
    share: Share = quiet,
) -> OpenLoopGap:
    """Replay the sent commands from every recorded pose.

    ``spec`` is the robot of the training model: nominal lag, delay and scale; ``reference`` is the series of starts and
    comparisons (odometry has its own noise); the sample nearest to each horizon (H,) [s] is compared; ``share`` gets
    the completed fraction.

    Raises:
        TestudoError: no robot has both ticks and a long enough reference.
    """
    model, tracks = motion_model(spec), run.truth if reference == "truth" else run.odometry
    recording = prepare_run(run, seen=reference)
    robots = [one for one in recording.robots if run.ticks[one.name] and len(tracks[one.name].stamp_s) > 1]
    if not robots:
        raise TestudoError(
            f"{run.folder}: found no robot with both tick records and {reference}, expected at least one"
        )
    timelines = [command_timeline(model, ticks_in_order(run.ticks[one.name]), recording.start_s) for one in robots]
    windows = [
        pick_windows(timeline, one.trajectory, horizons_s) for timeline, one in zip(timelines, robots, strict=True)
    ]
    share(0.3)
    predicted = rollout(model, timelines, [own.starts for own in windows], exact=True)
    share(0.8)
    errors = [
        errors_of(spec, one.trajectory, own, states)
        for one, own, states in zip(robots, windows, predicted, strict=True)
    ]
    rows = rows_of([one.name for one in robots], errors, horizons_s)
    if not rows:
        raise TestudoError(f"{run.folder}: found no stretch without gaps of {min(horizons_s)} s, the shortest horizon")
    return OpenLoopGap.of(reference, spec, horizons_s, rows)


def errors_of(
    spec: RobotSpec, track: Trajectory, windows: OpenLoopWindows, predicted: MotionState
) -> dict[str, np.ndarray]:
    """Return absolute errors (H, S) by channel, NaN where a window has no such horizon; also the distance travelled."""
    end = windows.end
    offset = predicted.position_world - track.position_world[end].transpose(2, 0, 1)
    speed = predicted.velocity - track.velocity[end].transpose(2, 0, 1)
    moved = track.position_world[end] - track.position_world[windows.start][None]
    wheeled = spec.kind == DIFFERENTIAL_DRIVE
    values = {axis: np.abs(offset[k]) for k, axis in enumerate("xyz"[: spec.dimension])}
    values |= {
        "position": np.linalg.norm(offset, axis=0),
        "yaw": np.abs(wrap_angle(predicted.yaw - track.yaw[end])),
        "speed": np.abs(speed[0]) if wheeled else np.linalg.norm(speed, axis=0),
        "travel": np.linalg.norm(moved, axis=2),
    }
    return {name: np.where(windows.valid, value, np.nan) for name, value in values.items()}


def rows_of(
    names: Sequence[str], errors: Sequence[Mapping[str, np.ndarray]], horizons_s: Sequence[float]
) -> list[GapRow]:
    """Return the rows of each robot and of all together, from errors (H, S) of each by channel."""
    pooled = {channel: np.concatenate([own[channel] for own in errors], axis=1) for channel in errors[0]}
    return [
        row
        for name, own in zip([*names, ALL_ROBOTS], [*errors, pooled], strict=True)
        for row in _rows(name, own, horizons_s)
    ]


def _rows(robot: str, errors: Mapping[str, np.ndarray], horizons_s: Sequence[float]) -> list[GapRow]:
    """Return the rows of one robot, or of all, from errors (H, S) by channel."""
    units = {"yaw": "rad", "speed": "m/s"}
    rows = []
    known = [row[~np.isnan(row)] for row in errors["travel"]]
    travel_m = [float(np.median(row)) if len(row) else np.nan for row in known]
    for channel, values in errors.items():
        for h, horizon in enumerate(horizons_s):
            usable = values[h][np.isfinite(values[h])]
            if channel == "travel" or not len(usable):
                continue
            median, p90, p99 = (float(value) for value in np.percentile(usable, (50, 90, 99)))
            found = OpenLoopErrors(median, p90, p99, len(usable))
            rows.append(GapRow(robot, channel, units.get(channel, "m"), horizon, found, travel_m[h]))
    return rows
