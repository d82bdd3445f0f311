"""Sampled futures of recorded windows, and the share of recorded motions inside their bands.

Each future has its own parameters, drawn in their intervals, its own path of the residual motion, and its own errors of
the two measured poses. Nothing of the recorded motion but its start enters.
"""

from dataclasses import replace

import numpy as np

from testudo_analysis.identify.residual_motion.rate_windows import RateWindows
from testudo_hardware.motion.motion_noise import MotionNoise, sampled_path

FUTURES = 300
_TAIL = 0.025  # at each end of a band


def bands(
    noise: MotionNoise, windows: RateWindows, half_widths: np.ndarray, futures: int = FUTURES, seed: int = 0
) -> np.ndarray:
    """Return the ends (2, C, N) of the 95 % bands of the errors, sampled less predicted.

    ``half_widths`` (P,) of the intervals of the parameters. The quantiles are those at which one more future is inside
    with 95 %, for any number of futures.
    """
    rng = np.random.default_rng(seed)
    found = np.empty((2, *windows.error.shape))
    for k in np.unique(windows.stretch):
        inside = np.flatnonzero(windows.stretch == k)
        sampled = _sampled(noise, windows, inside, half_widths, futures, rng)
        found[..., inside] = np.quantile(sampled, [_TAIL, 1 - _TAIL], axis=-1, method="weibull")
    return found


def inside(ends: np.ndarray, windows: RateWindows) -> np.ndarray:
    """Return which recorded motions (C, N) are inside bands (2, C, N)."""
    recorded = -windows.error
    return (ends[0] <= recorded) & (recorded <= ends[1])


def few_stretches(windows: RateWindows, most: int) -> RateWindows:
    """Return the windows of at most ``most`` stretches of each robot, evenly spaced."""
    kept = np.zeros(len(windows.velocity), bool)
    for robot in np.unique(windows.robot):
        own = np.unique(windows.stretch[windows.robot == robot])
        kept[own[np.unique(np.linspace(0, len(own) - 1, most).round().astype(int))]] = True
    return windows.of_stretches(kept)


def _sampled(
    noise: MotionNoise,
    windows: RateWindows,
    which: np.ndarray,
    half_widths: np.ndarray,
    futures: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return sampled less predicted motions (C, N, K) of windows of one stretch, in the axes at each start."""
    first, last = windows.start[which], windows.end[which]
    origin = first.min()
    velocity = windows.velocity[windows.stretch[which[0]], :, origin : last.max() + 1, None]
    normal = rng.standard_normal((len(noise.channels), velocity.shape[1] - 1, futures))
    sampled, plain = (
        _moved(*sampled_path(process, velocity, np.zeros(1), normal[..., :count], windows.step_s), span, noise.wheeled)
        for process, count, span in (
            (noise, futures, (first - origin, last - origin)),
            (noise.silent(), 1, (first - origin, last - origin)),
        )
    )
    drawn = half_widths[:, None] * rng.uniform(-1, 1, (len(half_widths), futures))
    found = sampled - plain + np.einsum("pk,pcn->cnk", drawn, windows.slope[..., which])
    seen = rng.standard_normal((2, *found.shape))
    error = noise.pose_yaw_rad * seen[0, -1]
    found[-1] += error + noise.pose_yaw_rad * seen[1, -1]
    found[:-1] += noise.pose_position_m * (seen[0, :-1] + seen[1, :-1])
    if noise.wheeled:  # an error of the first heading turns the whole way
        found[0] += error * (plain[1] + found[1])
        found[1] -= error * (plain[0] + found[0])
    return found


def _moved(position: np.ndarray, yaw: np.ndarray, span: tuple[np.ndarray, np.ndarray], wheeled: bool) -> np.ndarray:
    """Return the motions (C, N, K) between steps (N,) of paths (D, T, K) and headings (T, K), in the start's axes."""
    first, last = span
    way, turned = position[:, last] - position[:, first], yaw[last] - yaw[first]
    if wheeled:
        cos, sin = np.cos(yaw[first]), np.sin(yaw[first])
        way = np.stack([cos * way[0] + sin * way[1], cos * way[1] - sin * way[0]])
    return np.concatenate([way, turned[None]])


def without_noise(noise: MotionNoise) -> MotionNoise:
    """Return the process with the errors of measured poses only: the negative control of the coverage."""
    silent = noise.silent()
    return replace(silent, pose_position_m=noise.pose_position_m, pose_yaw_rad=noise.pose_yaw_rad)
