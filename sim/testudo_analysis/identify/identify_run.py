"""Identification of a recorded run: choice of robots and fit, and estimates with the keys of a robot file."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from testudo_analysis.identify.drone.identify_drone import DroneSettings, can_identify, identify_drone
from testudo_analysis.identify.estimation.differentiable_rollout import DELAY, SLIP, to_file
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, Estimate, Identification
from testudo_analysis.identify.estimation.robust_fit import MANOEUVRES, BootstrapSpread, prior
from testudo_analysis.identify.ground_fit import GroundFit, HoldOut, fit_ground
from testudo_analysis.identify.held_out_errors import FEATURES, WORTH, worth
from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.motion_noise import CHANNEL_PARTS, MotionNoise
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, MOTION_NOISE, QUANTITIES, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.progress_bar import Tell, part, quiet
from testudo_runs.recording.recording import Recording, RobotRecording, Series

WHEEL_RADIUS, WHEEL_BASE = "wheel radius that the speed scale stands for", "wheel base that both scales stand for"
_LATE_S = 0.01  # time between stamp and arrival from which the estimate of the delay has a note on clocks
_SHARED_S = 5.0  # least common time of poses and commands: about one stretch
_DAY_KNOWN_NS = 100_000_000_000_000_000  # earlier stamps (before 1973) are times since the start of a robot
_ALIGNED = 0.1  # approximate share of the time that alignment takes
_SPEED, _TURN = "dynamics.speed_scale", "dynamics.turn_scale"
_UNSEEN = (_SPEED, _TURN, SLIP)
"""Parameters that odometry cannot determine, as it measures the wheels and not the motion on the floor."""


def identify_run(
    team: TeamRecording,
    *,
    robots: Sequence[str] = (),
    hold_out: Sequence[HoldOut] = (HALF, ROBOTS),
    residual: bool = False,
    tell: Tell = quiet,
) -> tuple[Identification, str]:
    """Return the identification of one robot type from a run, and the robot file that it starts from.

    Drones with recorded motor signals are identified from those (`identify_drone`), all others from velocity commands.

    ``robots`` are names, by default all of the type; ``hold_out`` is the held-out data for the validation; ``residual``
    also validates a residual model; ``tell`` gets the current step and the completed fraction.

    Raises:
        TestudoError: no such robot, no type or several, an unsupported kind, too little motion, or a residual model
            of another kind than differential drives or without held-out data.
    """
    recording = team.source
    chosen, source = choose(recording, robots, team.robot_type)
    spec = load_robot(source)
    if residual and (spec.kind != DIFFERENTIAL_DRIVE or not hold_out):
        raise TestudoError(
            f"--residual: found a {spec.kind} and {len(hold_out)} kinds of held-out data, expected a "
            f"{DIFFERENTIAL_DRIVE} and at least one: they measure the benefit of a residual model"
        )
    if spec.kind == VELOCITY_POINT and all(map(can_identify, chosen)):
        found = identify_drone(
            [recording],
            spec,
            robots=[robot.name for robot in chosen],
            settings=DroneSettings(hold_out=tuple(hold_out)),
            tell=tell,
        )
        return replace(found, facts=facts_of(recording, chosen) | dict(found.facts)), source
    chosen, left_out = (chosen, {}) if robots else usable(chosen)
    aligned = align(team, chosen, part(tell, 0.0, _ALIGNED))
    facts = facts_of(recording, chosen) | ({"left_out": "; ".join(left_out.values())} if left_out else {})
    rest = part(tell, _ALIGNED, 1.0)
    return identify_ground(aligned, spec, facts, hold_out=hold_out, residual=residual, tell=rest), source


def align(team: TeamRecording, chosen: Sequence[RobotRecording], tell: Tell = quiet) -> list[AlignedRobot]:
    """Return some robots of a run, aligned, with their commands and their latency."""
    aligned = []
    for k, robot in enumerate(chosen):
        tell(f"aligning {robot.name}", k / len(chosen))
        aligned.append(team.robot(robot.name))
        _ = aligned[-1].needed_commands(), aligned[-1].latency
    return aligned


def identify_ground(
    aligned: Sequence[AlignedRobot],
    spec: RobotSpec,
    facts: Mapping[str, Any],
    *,
    hold_out: Sequence[HoldOut] = (HALF, ROBOTS),
    runs: Sequence[str] = (),
    residual: bool = False,
    tell: Tell = quiet,
) -> Identification:
    """Return the identification of robots of one type that follow velocities, with the provenance ``facts``.

    ``runs`` names the run of each robot, for the held-out runs.
    """
    found = fit_ground(aligned, spec, hold_out=hold_out, runs=runs, residual=residual, tell=tell)
    if any(robot.report.reference == "odometry" for robot in aligned):
        found = replace(found, noise=None)  # odometry measures the wheels and not the motion on the floor
    return Identification(
        spec.name,
        tuple(robot.name for robot in aligned),
        estimates(found, spec, aligned) + noise_estimates(found.noise),
        found.held_out,
        {**facts} | _choices(found, aligned) | (_residual(found) if residual else {}),
        found.coverage,
    )


def choose(recording: Recording, robots: Sequence[str], robot_type: str) -> tuple[list[RobotRecording], str]:
    """Return the robots to fit, all of one type, and that type.

    Raises:
        TestudoError: an unknown name, no type, or several.
    """
    unknown = set(robots) - set(recording.robots)
    if unknown:
        raise TestudoError(f"--robot: found {min(unknown)}, expected some of {', '.join(recording.robots)}")
    chosen = [robot for name, robot in recording.robots.items() if not robots or name in robots]
    types = sorted({robot.robot_type for robot in chosen})
    if robot_type:
        return chosen, robot_type
    if types == [""] or not types:
        raise TestudoError("identify: found no robot type in the run, expected one; give --robot-type TYPE")
    if len(types) > 1:
        raise TestudoError(
            f"identify: found robots of {len(types)} types ({', '.join(filter(None, types))}), expected "
            "one; name those of one type with --robot"
        )
    return chosen, types[0]


def usable(robots: Sequence[RobotRecording]) -> tuple[list[RobotRecording], dict[str, str]]:
    """Return the robots that can be fitted, and why others cannot, by name; all robots if none can.

    Raises:
        TestudoError: none can, as poses and commands have no common time.
    """
    reasons = {robot.name: reason for robot in robots if (reason := _unusable(robot))}
    kept = [robot for robot in robots if robot.name not in reasons]
    apart = [reasons[robot.name] for robot in robots if _shared_s(robot) <= 0]
    if apart and not kept:
        raise TestudoError("; ".join(apart))
    return (kept, reasons) if kept else (list(robots), {})


def _seen(robot: RobotRecording) -> Series | None:
    return next((robot.series[role] for role in ("pose", "odometry") if len(robot.series.get(role, ()))), None)


def _shared_s(robot: RobotRecording) -> float:
    """Return the common time of poses and commands [s]; infinite if one of them is missing."""
    seen, sent = _seen(robot), robot.series.get("command")
    if seen is None or sent is None or not len(sent):
        return math.inf
    return float(min(seen.stamp_s.max(), sent.stamp_s.max()) - max(seen.stamp_s.min(), sent.stamp_s.min()))


def _unusable(robot: RobotRecording) -> str:
    """Return why a robot cannot be fitted; empty if it can."""
    if _seen(robot) is None:
        return f"{robot.name}: neither pose nor odometry is recorded"
    if not len(robot.series.get("command", ())):
        return f"{robot.name}: no command is recorded"
    shared_s = _shared_s(robot)
    if shared_s <= 0:
        return f"{robot.name}: its poses and its commands have no common time"
    if shared_s < _SHARED_S:
        return f"{robot.name}: poses and commands have only {shared_s:.1f} s in common"
    return ""


def estimates(found: GroundFit, spec: RobotSpec, robots: Sequence[AlignedRobot]) -> tuple[Estimate, ...]:
    """Return the parameters in the units of the robot file, and the wheel dimensions equivalent to both scales."""
    believed = any(robot.report.reference == "odometry" for robot in robots)
    low, high = found.spread.interval(found.values)
    value, low, high = (to_file(found.keys, part) for part in (found.values, low, high))
    singles = [
        (to_file(found.keys, values), *(to_file(found.keys, end) for end in spread.interval(values)))
        for values, spread in zip(found.by_robot, found.robot_spread, strict=True)
    ]
    rows = []
    for k, key in enumerate(found.keys):
        rule = QUANTITIES[key]
        if key in _UNSEEN and believed:
            rows.append(_unseen(found, spec, k))
            continue
        if not found.free[k]:
            rows.append(_undetermined(found, spec, k))
            continue
        by_robot = {}
        for robot, single, determined in zip(robots, singles, found.robot_tells, strict=True):
            if len(robots) > 1 and determined[k]:
                own, least, most = (float(np.clip(part[k], rule.low, rule.high)) for part in single)
                by_robot[robot.name] = own, least, most
        least, most = (float(np.clip(end[k], rule.low, rule.high)) for end in (low, high))
        row = Estimate(key, float(value[k]), least, most, rule.unit, True, "", by_robot)
        rows.append(_with_clocks(row, robots) if key == DELAY else row)
    whole = not believed and spec.kind == DIFFERENTIAL_DRIVE
    if whole and all(found.free[found.keys.index(key)] for key in (_SPEED, _TURN)):
        rows += _wheels(found, spec)
    return tuple(rows)


def noise_estimates(noise: MotionNoise | None) -> tuple[Estimate, ...]:
    """Return the residual motion as estimates with the keys of a robot file, without intervals."""
    if noise is None:
        return ()
    numbers = {
        f"{name}_{part}": number
        for name, channel in zip(noise.names, noise.channels, strict=True)
        for part, number in zip(CHANNEL_PARTS, vars(channel).values(), strict=True)
    } | {"pose_position": noise.pose_position_m, "pose_yaw": noise.pose_yaw_rad}
    rows = []
    for name, number in numbers.items():
        rule = MOTION_NOISE[f"motion_noise.{name}"]
        value = float(np.clip(number, rule.low, rule.high))
        rows.append(Estimate(f"motion_noise.{name}", value, value, value, rule.unit))
    return tuple(rows)


def _with_clocks(estimate: Estimate, robots: Sequence[AlignedRobot]) -> Estimate:
    """Return the estimate of the delay with an interval for possible clock offsets.

    A message received after its stamp was in transport, or its sender's clock is behind. With uncorrected stamps the
    delay is shorter by the offset of the commands' clock, and longer by that of the poses' clock.
    """
    behind = {"command": 0.0, "pose": 0.0}
    for robot, role in product(robots, behind):
        fit = robot.report.clocks.get(role)
        if fit is not None and not fit.corrected:
            behind[role] = max(behind[role], fit.offset_s)
    note = ""
    if max(behind.values()) >= _LATE_S:
        note = (
            f"commands arrived at least {1e3 * behind['command']:.0f} ms, poses {1e3 * behind['pose']:.0f} ms after "
            "their stamps: transport, or a clock that is behind"
        )
    low, high = max(estimate.low - behind["command"], 0.0), estimate.high + behind["pose"]
    return replace(estimate, low=low, high=high, note=note)


def facts_of(recording: Recording, robots: Sequence[RobotRecording]) -> dict[str, Any]:
    """Return the provenance of the numbers."""
    start = datetime.fromtimestamp(recording.start_ns / 1e9, UTC)
    digest = file_sha256(recording.folder / BAG_FILE) if recording.folder else ""
    return {
        "run": "" if recording.folder is None else recording.folder.resolve().name,
        "run_sha256": digest,
        "recorded": start.strftime("%Y-%m-%d") if recording.start_ns > _DAY_KNOWN_NS else "",
        "version": version("testudo"),
        "fitted": ", ".join(robot.name for robot in robots),
        "duration_s": recording.duration_s,
        "complete": recording.complete,
    }


def file_sha256(path: Path) -> str:
    """Return the hash of a file; empty if it does not exist."""
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _undetermined(found: GroundFit, spec: RobotSpec, k: int) -> Estimate:
    """Return the prior of a parameter that the run does not determine, with the reason and a manoeuvre for it."""
    key = found.keys[k]
    low, high = prior(spec, key)
    reason = "nothing in the run depends on it" if found.flat[k] else "its interval is as wide as the prior one"
    if key == SLIP:
        reason = "none is visible beyond the noise"
    value = float(getattr(spec, QUANTITIES[key].attribute))
    note = f"{reason}; to find it: {MANOEUVRES.get(key, 'drive more')}"
    return Estimate(key, value, low, high, QUANTITIES[key].unit, False, note)


def _unseen(found: GroundFit, spec: RobotSpec, k: int) -> Estimate:
    """Return the prior of a parameter that odometry does not determine, with its estimate relative to odometry."""
    key = found.keys[k]
    value, low, high = (
        float(to_file(found.keys, part)[k]) for part in (found.values, *found.spread.interval(found.values))
    )
    relative = f"; relative to odometry it is {value:.4g} [{low:.4g}, {high:.4g}]" if found.free[k] else ""
    note = (
        f"the reference is odometry, which does not measure the motion on the floor{relative}; to find it: record "
        f"external poses, and {MANOEUVRES.get(key, 'drive more')}"
    )
    return Estimate(
        key, float(getattr(spec, QUANTITIES[key].attribute)), *prior(spec, key), QUANTITIES[key].unit, False, note
    )


def _wheels(found: GroundFit, spec: RobotSpec) -> list[Estimate]:
    """Return the wheel radius and base for which both scales are one."""
    at = [found.keys.index(_SPEED), found.keys.index(_TURN)]

    def both(values: np.ndarray) -> np.ndarray:
        speed, turn = values[..., at[0]], values[..., at[1]]
        return np.stack([spec.wheel_radius_m * speed, spec.wheel_base_m * speed / turn], axis=-1)

    value = both(found.values)
    spread = BootstrapSpread(both(found.spread.samples), found.spread.blocks, found.spread.fitted)
    low, high = spread.interval(value)
    return [
        Estimate(name, float(value[k]), float(low[k]), float(high[k]), "m")
        for k, name in enumerate((WHEEL_RADIUS, WHEEL_BASE))
    ]


def _choices(found: GroundFit, robots: Sequence[AlignedRobot]) -> dict[str, Any]:
    cutting = found.cutting
    believed = [robot.name for robot in robots if robot.report.reference == "odometry"]
    horizons = ", ".join(f"{horizon:g}" for horizon in cutting.horizons_s)
    return {
        "windows": f"{int(found.stretches.fitted.sum())} of {horizons} s in {len(found.stretches)} stretches",
        "horizons_s": list(cutting.horizons_s),
        "step_s": cutting.step_s,
        "spacing_s": cutting.spacing_s,
        "bootstrap_blocks": found.spread.blocks,
        "loss": found.loss,
        "dead_reckoning_loss": found.baseline_loss,
        "delay_at_start_s": found.start_delay_s,
        "residual_deviation": found.scale.tolist(),
        "alignment": {robot.name: robot.provenance() for robot in robots},
        **({"reference": f"odometry of {', '.join(believed)}: no external poses are recorded"} if believed else {}),
    }


def _residual(found: GroundFit) -> dict[str, Any]:
    """Return the benefit of the residual model; the motion models do not support one, so it is not used."""
    value = worth(found.held_out)
    return {
        "residual": {
            "features": list(FEATURES),
            "lower_by": value.shares,
            "worth": WORTH,
            "helps": value.helps,
            "used": False,
        }
    }
