"""Residual motion of robots with velocity commands: the process that the robot file gets, and its held-out coverage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import SLIP, BatchedRollout, to_inner
from testudo_analysis.identify.estimation.identification_result import RECORDED, Coverage
from testudo_analysis.identify.estimation.robust_fit import FEWEST_BLOCKS
from testudo_analysis.identify.estimation.rollout_windows import SegmentSettings, cut
from testudo_analysis.identify.residual_motion.noise_fit import fit_noise, pose_noise
from testudo_analysis.identify.residual_motion.rate_windows import RateWindows
from testudo_analysis.identify.residual_motion.sampled_futures import bands, few_stretches, inside, without_noise
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.motion_noise import MotionNoise, channel_names
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, Trajectory

_MOST, _MOST_OF_ROBOT = 800, 160  # stretches that are used, of all robots and of each
_CHECKED = 24  # stretches of each robot whose coverage is measured
_DRAWN = ("dynamics.command_delay", "dynamics.velocity_lag", "dynamics.speed_scale", "dynamics.turn_scale", SLIP)
"""Parameters that are drawn in their intervals."""
_STEP = 0.02  # of the half width of an interval, for the slopes


@dataclass(frozen=True)
class NoiseStudy:
    """Some stretches of a run, at which errors and their slopes are known for any parameters."""

    roller: BatchedRollout
    chosen: np.ndarray  # (Q,) int: stretches of the run
    half_widths: np.ndarray  # (P,): of the intervals of the parameters, as fitted
    slopes: np.ndarray  # (P, Q, C, S): change of the errors with each parameter
    pose: tuple[float, float]  # deviations of a measured pose [m], [rad]

    @classmethod
    def create(
        cls, roller: BatchedRollout, values: np.ndarray, half_widths: np.ndarray, tracks: Sequence[Trajectory]
    ) -> "NoiseStudy":
        """Return the study of a run for parameters (P,) with half widths (P,) of their intervals."""
        robot = roller.stretches.robot
        count = len(np.unique(robot))
        most = min(_MOST_OF_ROBOT, max(_MOST // count, 1))
        chosen = np.concatenate([_spread(np.flatnonzero(robot == k), most) for k in np.unique(robot)])
        few = BatchedRollout(roller.spec, roller.keys, roller.stretches.take(chosen), roller.cutting)
        every = np.broadcast_to(values, (len(chosen), len(values)))
        plain = few.errors(every)
        slopes = []
        for k, width in enumerate(half_widths):
            moved = every.copy()
            moved[:, k] += max(_STEP * width, 1e-6)
            slopes.append((few.errors(moved) - plain) / max(_STEP * width, 1e-6) if width > 0 else 0 * plain)
        return cls(
            few, chosen, half_widths, np.array(slopes).reshape(len(half_widths), *plain.shape), pose_noise(tracks)
        )

    def windows(self, values: np.ndarray) -> RateWindows:
        """Return the windows at parameters (Q, P) of the chosen stretches."""
        few = self.roller
        return RateWindows.create(
            few.stretches, few.velocities(values), few.errors(values), self.slopes, few.cutting.step_s
        )

    def of_others(self, singles: np.ndarray, left_out: Sequence[int] = ()) -> np.ndarray:
        """Return parameters (Q, P) for each stretch: the mean fit (R, P) of the robots that are not its own.

        A robot's own fit would leave less than what the file leaves on another robot. ``left_out`` are left out of all
        means; a robot without others has its own fit.
        """
        count, means = len(singles), []
        for k in range(count):
            others = [other for other in range(count) if other not in (k, *left_out)] or [k]
            means.append(singles[others].mean(axis=0))
        return np.array(means)[self.roller.stretches.robot]

    def fitted(self, windows: RateWindows, half_widths: np.ndarray) -> MotionNoise:
        """Return the process of some windows, beside parameters with half widths (P,) of their intervals."""
        return fit_noise(windows, self.roller.spec, half_widths, self.pose)

    def coverage(
        self, noise: MotionNoise, windows: RateWindows, half_widths: np.ndarray, names: Sequence[str], split: str
    ) -> list[Coverage]:
        """Return the coverage of held-out windows: of each robot, and of all together if there are several."""
        checked = few_stretches(windows, _CHECKED)
        if not len(checked.start):
            return []
        ends = bands(noise, checked, half_widths)
        held = inside(ends, checked)
        control = inside(bands(without_noise(noise), checked, half_widths), checked)
        robots = np.unique(checked.robot)
        parts: list[tuple[str, np.ndarray]] = [(names[int(k)], checked.robot == k) for k in robots]
        parts += [("", np.ones(len(checked.start), bool))] if len(robots) > 1 else []
        return [
            Coverage(
                name,
                horizon,
                channel,
                float(held[c, at].mean()),
                float(control[c, at].mean()),
                float(np.median((ends[1] - ends[0])[c, at])),
                int(at.sum()),
                split,
            )
            for name, part in parts
            for h, horizon in enumerate(self.roller.cutting.horizons_s)
            for at in [part & (checked.horizon == h)]
            if at.any()
            for c, channel in enumerate(channel_names(self.roller.spec))
        ]


def enough(roller: BatchedRollout) -> bool:
    """Return whether a run has enough stretches for a process."""
    return len(roller.stretches) >= 2 * FEWEST_BLOCKS


def recorded_coverage(robots: Sequence[AlignedRobot], spec: RobotSpec) -> tuple[Coverage, ...]:
    """Return how many recorded motions of robots are inside the bands that a robot file gives.

    Empty where the file has no `[motion_noise]`, or the run too few windows.
    """
    noise = MotionNoise.from_spec(spec)
    if noise is None:
        return ()
    cutting = SegmentSettings.create(spec, sum(float(np.ptp(robot.trajectory.stamp_s)) for robot in robots))
    try:
        stretches = cut(robots, spec, cutting)
    except TestudoError:  # too few windows
        return ()
    keys = tuple(key for key in _DRAWN if key in spec.quantities and spec.quantities[key].half_width > 0)
    low, high = (
        to_inner(keys, np.array([getattr(spec.quantities[key], end) for key in keys])) for end in ("low", "high")
    )
    roller = BatchedRollout(spec, keys, stretches, cutting)
    study = NoiseStudy.create(roller, roller.nominal(), (high - low) / 2, [robot.trajectory for robot in robots])
    windows = study.windows(np.broadcast_to(roller.nominal(), (len(study.chosen), len(keys))))
    return tuple(study.coverage(noise, windows, study.half_widths, [robot.name for robot in robots], RECORDED))


def _spread(index: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many of the indices, evenly spaced."""
    return index[np.unique(np.linspace(0, len(index) - 1, min(most, len(index))).round().astype(int))]
