"""A robot's motion in steps of a millisecond, written anew from its description: nothing of the motion models."""

import math
from dataclasses import dataclass

import numpy as np

from testudo_deploy.control.state_prediction import PendingCommands, estimate_state
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE

STEP_S = 1e-3


@dataclass(frozen=True)
class Truth:
    """What the robot does not know of itself: lag, delay, and realised over commanded velocity of each channel."""

    lag_s: float
    delay_s: float
    scale: np.ndarray


def nominal(spec):
    """Return the robot as its file has it."""
    scale = [spec.speed_scale] * spec.dimension
    if spec.kind == DIFFERENTIAL_DRIVE:
        scale[1] = spec.turn_scale
    return Truth(spec.velocity_lag_s, spec.command_delay_s, np.array(scale))


def drawn(spec, rng, *, ends=False):
    """Return a robot within the intervals of its file, or at their ends."""

    def draw(name):
        quantity = spec.quantities[name]
        return rng.choice([quantity.low, quantity.high]) if ends else rng.uniform(quantity.low, quantity.high)

    scale = [draw("dynamics.speed_scale")] * spec.dimension
    if spec.kind == DIFFERENTIAL_DRIVE:
        scale[1] = draw("dynamics.turn_scale")
    return Truth(draw("dynamics.velocity_lag"), draw("dynamics.command_delay"), np.array(scale))


def limited(spec, command):
    """Return an actuator command (D,) as the driver clips it: the whole of it shrinks."""
    if spec.kind != DIFFERENTIAL_DRIVE:
        return command * min(1.0, spec.speed_limit_m_s / max(np.linalg.norm(command), 1e-12))
    forward, turn = command
    shares = [spec.wheel_limit_m_s / max(abs(forward + side * turn * spec.wheel_base_m / 2), 1e-12) for side in (-1, 1)]
    shares += [spec.speed_limit_m_s / max(abs(forward), 1e-12), spec.turn_rate_limit_rad_s / max(abs(turn), 1e-12)]
    return command * min(1.0, *shares)


def roll(spec, truth, state, acting, time_s):
    """Move a robot by small steps; returns positions (S, D), yaws (S,), velocities (S, D), the start first.

    Args:
        spec: the robot.
        truth: see `Truth`.
        state: position, yaw, velocity.
        acting: function of the time since the start that gives the limited actuator command (D,) that acts.
        time_s: for so long.
    """
    place, yaw, velocity = (np.array(part, float).tolist() for part in state)
    scale, path, drives = truth.scale.tolist(), [(place, yaw, velocity)], spec.kind == DIFFERENTIAL_DRIVE
    for step in range(round(time_s / STEP_S)):
        command = acting(step * STEP_S)
        rate = [(s * c - v) / truth.lag_s for s, c, v in zip(scale, command, velocity, strict=True)]
        if not drives:
            share = min(1.0, spec.acceleration_limit_m_s2 / max(math.hypot(*rate), 1e-12))
            after = [v + STEP_S * share * r for v, r in zip(velocity, rate, strict=True)]
            place = [p + STEP_S * (v + a) / 2 for p, v, a in zip(place, velocity, after, strict=True)]
        else:
            most = spec.acceleration_limit_m_s2, spec.turn_acceleration_limit_rad_s2
            after = [v + STEP_S * min(max(r, -m), m) for v, r, m in zip(velocity, rate, most, strict=True)]
            forward, turn = ((v + a) / 2 for v, a in zip(velocity, after, strict=True))
            middle = yaw + STEP_S * turn / 2
            place = [place[0] + STEP_S * forward * math.cos(middle), place[1] + STEP_S * forward * math.sin(middle)]
            yaw = yaw + STEP_S * turn
        velocity = after
        path.append((place, yaw, velocity))
    return tuple(np.array(part) for part in zip(*path, strict=True))


def random_command(spec, rng):
    """Return an actuator command (D,) within the limits, often at them."""
    most = np.full(spec.dimension, spec.speed_limit_m_s)
    if spec.kind == DIFFERENTIAL_DRIVE:
        most[1] = spec.turn_rate_limit_rad_s
    command = rng.uniform(-1, 1, spec.dimension) * most
    return limited(spec, command * rng.choice([0.0, 0.3, 1.0, 5.0]))


@dataclass(frozen=True)
class Run:
    """A robot on its way that is about to send a command."""

    measured: MotionState
    """The newest pose."""
    estimate: MotionState
    """The state in which the command will begin to act, as the control loop predicts it."""
    age_s: float
    """Of the pose."""
    sent: tuple[tuple[float, np.ndarray], ...]
    """Limited commands with their times since the pose, newest first."""
    start: tuple
    """True state at the time of the pose."""


def velocity_error(spec, rng, share=1.0):
    """Return an error of the measured velocity (D,) within the bound of its file; wheeled: of the rims."""
    error, size = share * spec.velocity_error_m_s, spec.dimension
    if not error:  # the other draws of a seed stay as they are
        return np.zeros(size)
    if spec.kind != DIFFERENTIAL_DRIVE:
        offset = rng.standard_normal(size)
        return offset * error * rng.choice([1.0, rng.uniform()]) / np.linalg.norm(offset)
    right, left = error * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], 2)
    return np.array([(right + left) / 2, (right - left) / spec.wheel_base_m])


def on_its_way(model, truth, rng, *, noise=1.0):
    """Return a robot that drives under random commands; ``noise`` is the share of its error bounds."""
    spec, period = model.spec, model.spec.control_period_s
    # on the grid of small steps, so that their rounding is no error of the tube
    size, command = spec.dimension, random_command(spec, rng)
    # enough of them to reach back over pose age and delay, else what acts at first is unknown to the prediction
    count = max(12, math.ceil((spec.pose_max_age_s + spec.command_delay_s) / period) + 2)
    age_s = STEP_S * rng.integers(0, round(spec.pose_max_age_s / STEP_S) + 1)
    sent = []
    for k in range(count):  # newest first, one tick apart
        sent.append((age_s - (k + 1) * period, command))
        command = random_command(spec, rng) if rng.random() < 0.3 else command
    lead_s = 0.3
    at_first = ((0.0,) * size, rng.uniform(-4, 4), truth.scale * sent[-1][1])
    places, yaws, velocities = roll(spec, truth, at_first, lambda t: acting(sent, truth, t - lead_s), lead_s)
    start = places[-1], yaws[-1], velocities[-1]
    offset = rng.standard_normal(size)
    offset *= noise * spec.position_error_m * rng.uniform() / np.linalg.norm(offset)
    turned = noise * spec.yaw_error_rad * rng.uniform(-1, 1) * (spec.kind == DIFFERENTIAL_DRIVE)
    measured = MotionState(start[0] + offset, start[1] + turned, start[2] + velocity_error(spec, rng, noise))
    pending = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    scale = nominal(spec).scale
    for time_s, command in reversed(sent):
        pending.push(time_s, scale * command)
    commands, times = pending.since(0.0, age_s)
    return Run(measured, estimate_state(model, measured, commands, times), age_s, tuple(sent), start)


def acting(sent, truth, time_s):
    """Return which of the commands (newest first) acts at a time; the oldest before all of them."""
    until = time_s - truth.delay_s + 1e-9
    for sent_s, command in sent:
        if sent_s <= until:
            return command
    return sent[-1][1]


def path_to_rest(spec, truth, run, command, held_s):
    """Return where the body is (S, D) from the pose on, if ``command`` acts for ``held_s`` and zero follows."""
    sent = ((run.age_s + held_s, 0 * command), (run.age_s, command), *run.sent)
    speed = np.linalg.norm(command) + np.linalg.norm(run.start[2])
    rest_s = 6 * truth.lag_s + min(speed, spec.speed_limit_m_s) / spec.acceleration_limit_m_s2
    time_s = run.age_s + truth.delay_s + held_s + rest_s
    return roll(spec, truth, run.start, lambda t: acting(sent, truth, t), time_s)[0]
