"""A run in memory, without ROS: control loops in a kinematic world of known lag and delay."""

import math
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_runs.run_reader import CommandTrack, RecordedRun, Track


@dataclass
class TrueRobot:
    """A robot that moves exactly as the motion model says, with its own lag, delay and scale."""

    spec: object
    state: MotionState
    lag_s: float
    delay_s: float
    scale: float
    sent: deque = field(default_factory=deque)
    acting: np.ndarray = None
    acting_since_s: float = -math.inf

    def command(self, stamp_s, values):
        self.sent.append((stamp_s + self.delay_s, np.array(values)))

    def advance(self, now_s, until_s):
        model = motion_model(self.spec)
        while now_s < until_s:
            while self.sent and self.sent[0][0] <= now_s:
                self.acting_since_s, self.acting = self.sent.popleft()
            next_s = self.sent[0][0] if self.sent else math.inf
            stale_s = self.acting_since_s + self.spec.dead_man_s
            dead = self.acting is None or now_s >= stale_s
            end = min(until_s, next_s, math.inf if dead else stale_s)
            command = np.zeros(self.spec.dimension) if dead else self.acting
            effective = self.scale * effective_command(model, command)
            response = LagResponse.create(np.array(end - now_s), self.lag_s)
            self.state = model.step(self.state, effective, response)
            now_s = end


def passing_lanes(count, spacing=0.3):
    """Return starts, yaws and goals: neighbours in lanes that are too narrow pass each other."""
    sides = [1 if k % 2 else -1 for k in range(count)]
    lanes = [spacing * (k - (count - 1) / 2) for k in range(count)]
    starts = [(0.6 * side, lane) for side, lane in zip(sides, lanes, strict=True)]
    goals = [(-0.9 * side, 0.8 * lane + 0.05) for side, lane in zip(sides, lanes, strict=True)]
    return starts, [0.3 if side < 0 else math.pi - 0.3 for side in sides], goals


def record_run(
    artefact,
    spec,
    *,
    seconds=6.0,
    count=3,
    lag=1.0,
    delay=1.0,
    scale=1.0,
    noise_m=0.0,
    silent=(),
    seed=0,
):
    """Return the `RecordedRun` of a team that drives through each other.

    Args:
        lag, delay, scale: of the true robots, relative to the description.
        noise_m: standard deviation of the measured position.
        silent: (robot index, first tick, last tick) whose odometry is lost: it brakes.
    """
    rng = np.random.default_rng(seed)
    # a large robot, and one in a lane of its own, would be in its neighbour's way before it moves
    room = 1.1 * stop_tube_parameters(spec).clearance_m if spec.dimension == 3 else 2.2 * spec.body_radius_m
    starts, yaws, goals = passing_lanes(count, max(0.3, room))
    starts = [(*p, 1.0)[: spec.dimension] for p in starts]
    goals = [(*p, 1.0)[: spec.dimension] for p in goals]
    names = tuple(f"r{k}" for k in range(count))
    robots = [
        TrueRobot(
            spec,
            MotionState(np.array(p), np.array(y), np.zeros(spec.dimension)),
            lag * spec.velocity_lag_s,
            delay * spec.command_delay_s,
            scale,
        )
        for p, y in zip(starts, yaws, strict=True)
    ]
    loops = [
        ControlLoop(
            artefact,
            spec,
            robot=name,
            peers=tuple(n for n in names if n != name),
            goal_world=goal,
            epoch="e",
        )
        for name, goal in zip(names, goals, strict=True)
    ]
    period, begin = spec.control_period_s, 100.0
    ticks, truth, odometry, sent, messages = ([[] for _ in names] for _ in range(5))
    mail = []
    for k in range(round(seconds / period)):
        now = begin + k * period
        for i, loop in enumerate(loops):
            row = [
                now,
                *robots[i].state.position_world,
                float(robots[i].state.yaw),
                *robots[i].state.velocity,
            ]
            truth[i].append(row)
            if k and not any(i == robot and low <= k <= high for robot, low, high in silent):
                old = np.array(truth[i][k - 1])
                old[1 : 1 + spec.dimension] += noise_m * rng.standard_normal(spec.dimension)
                odometry[i].append(list(old))
                loop.on_odometry(
                    old[0],
                    now,
                    tuple(old[1 : 1 + spec.dimension]),
                    old[1 + spec.dimension],
                    tuple(old[2 + spec.dimension :]),
                )
        for sender, message in mail:
            for i, loop in enumerate(loops):
                if i != sender:
                    loop.on_peer(message, now)
        mail = []
        for i, loop in enumerate(loops):
            record = loop.tick(now, 0.0)
            ticks[i].append(record)
            sent[i].append([now, *record.sent_command])
            robots[i].command(now, record.sent_command)
            message = loop.announcement(now)
            if message is not None:
                messages[i].append(message)
                mail.append((i, message))
        for robot in robots:
            robot.advance(now, now + period)
    fleet = Fleet(
        Path("fleet.yaml"),
        artefact.path,
        artefact.sha256,
        tuple(
            FleetRobot(name, spec.name, start, yaw, goal, spec)
            for name, start, yaw, goal in zip(names, starts, yaws, goals, strict=True)
        ),
    )
    commands = {name: _commands(rows) for name, rows in zip(names, sent, strict=True)}
    return RecordedRun(
        Path("run"),
        fleet,
        {"versions": {}},
        ticks={name: tuple(rows) for name, rows in zip(names, ticks, strict=True)},
        odometry={name: _track(rows, spec) for name, rows in zip(names, odometry, strict=True)},
        truth={name: _track(rows, spec) for name, rows in zip(names, truth, strict=True)},
        sent=commands,
        applied=commands,
        announcements={name: tuple(rows) for name, rows in zip(names, messages, strict=True)},
        events=(),
        complete=True,
        warnings=(),
    )


def _track(rows, spec):
    table, d = np.array(rows, float), spec.dimension
    return Track(table[:, 0], table[:, 0], table[:, 1 : 1 + d], table[:, 1 + d], table[:, 2 + d :])


def _commands(rows):
    table = np.array(rows, float)
    return CommandTrack(table[:, 0], table[:, 0], table[:, 1:])
