"""Adds to a run in memory what guards and drivers of this project make of its decisions."""

from dataclasses import replace

import numpy as np

from testudo_deploy.guard.command_guard import CommandGuard
from testudo_plant.plant.driver import Driver
from testudo_runs.tracks import CommandTrack, GuardSample

_DELAY_S = 0.0124
_REPORT_S = 0.1


def driven(run):
    """Return the run with `cmd_vel_policy`, guard reports, `cmd_vel` and `applied_cmd_vel`, as in lock-step."""
    made = {robot.name: _drive(robot.spec, robot.name, run.ticks[robot.name]) for robot in run.fleet.robots}
    columns = [{name: rows[k] for name, rows in made.items()} for k in range(4)]
    return replace(
        run,
        info={**run.info, "lock_step": True},
        commanded=columns[0],
        guard=columns[1],
        sent=columns[2],
        applied=columns[3],
    )


def _drive(spec, name, ticks):
    guard = CommandGuard(dimension=spec.dimension, dead_man_s=spec.dead_man_s)
    driver = Driver(spec, _DELAY_S, ticks[0].stamp_s)
    asked, reports, sent, applied = [], [], [], []
    code, since_s, reported_s, shown_s = None, 0.0, -1.0, None
    for tick in ticks:
        now_s = tick.stamp_s
        command = tuple(map(float, tick.sent_command))
        asked.append((now_s, now_s, *command, 0.0))
        passes = guard.command(now_s, command, now_s)
        guard.watch(now_s)
        sent.append((now_s, now_s, *(command if passes else (0.0,) * spec.dimension), 0.0))
        if guard.code != code or now_s - reported_s >= _REPORT_S - 1e-9:
            since_s = now_s if guard.code != code else since_s
            code, reported_s = guard.code, now_s
            counts = (guard.commands, guard.refused, guard.rearms, guard.stops)
            about = (guard.sentence, 2 if code else 0, f"{name}: guard", name)
            reports.append(GuardSample(now_s, now_s, code, now_s - since_s, counts, "lock-step", 1.0, *about))
        driver.receive(sent[-1][2:-1], now_s, now_s + spec.control_period_s)
        acting = driver.advance(now_s + spec.control_period_s + _DELAY_S)
        stamp_s = now_s + spec.control_period_s + _DELAY_S
        if acting.since_s != shown_s:
            shown_s = acting.since_s
            applied.append((stamp_s, stamp_s, *acting.values, 0.0))
    return _track(asked), tuple(reports), _track(sent), _track(applied)


def _track(rows):
    table = np.array(rows)
    return CommandTrack(table[:, 0], table[:, 1], table[:, 2:-1], table[:, -1])
