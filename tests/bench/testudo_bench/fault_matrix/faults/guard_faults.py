"""Rows 33 to 35 and 39, each with a fleet of its own.

A policy's process that sends past its shield or segment, a lost station, and a lost hold-to-run switch.
"""

import math
import signal
import time
from dataclasses import replace
from pathlib import Path

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow, brakes
from testudo_bench.fault_matrix.harness.fleet_bed import FleetBed
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, StalledError, write_fleet
from testudo_bench.fault_matrix.harness.joystick import Joystick
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.hold_switch import HoldSwitch
from testudo_deploy.guard.guard_bounds import segment_limits
from testudo_deploy.shield.arena import Arena

_HEADLONG = "testudo_bench.fault_matrix.harness.headlong_policy"
_UNRESERVED = "testudo_bench.fault_matrix.harness.unreserved_policy"
_REACHES_S, _REPEATS_S = 30.0, 3.0
_HEARTBEAT_S = 1.0
_SWITCH = HoldSwitch("/joy", 1)
_SEEN_RELEASED_S = 1.0


def walled(bed: FleetBed) -> Arena:
    """Return an arena in which the robots, along x = y, drive at a wall that is, for ours, a metre away."""
    low, far, wide = (bed.scale * metres for metres in (-1.0, 0.8, 3.0))
    return Arena((low, low), (far, wide))


def _drive_until_refused(harness: FleetHarness, code: str) -> None:
    """Start all robots; return some seconds after every guard refused a command for a reason.

    Raises:
        HarnessError: a robot cannot be started, or its guard refuses nothing.
    """
    names, heard = harness.fleet.names, harness.observer.robots
    for name in names:
        harness.bring_up(name)
    for name in names:
        found = f"the guard of {name} did not refuse a command"
        harness.wait(lambda name=name: heard[name].guard_code == code, found, _REACHES_S)
    time.sleep(_REPEATS_S)  # the policy tries again once a second


def past_the_shield(folder: Path, bed: FleetBed) -> FaultFinding | None:
    """Every policy's process sends top speed at the wall, without a shield: each guard brakes from its own pose."""
    folder.mkdir(parents=True)
    fleet = write_fleet(folder, bed=bed, arena=walled(bed))
    with FleetHarness(folder, fleet, bed=bed, module=_HEADLONG) as harness:
        heard = harness.observer.robots
        try:
            _drive_until_refused(harness, "arena")
        except StalledError:
            return None
        except HarnessError as error:
            return FaultFinding(False, None, str(error))
        radius_m = fleet.robots[0].spec.body_radius_m
        farthest_m = max(reading.position_world[0] for name in fleet.names for _, reading in heard[name].truth)
    left_m = walled(bed).high_world[0] - radius_m - farthest_m
    return FaultFinding(left_m > 0, None, f"least distance of a body from the wall: {1e3 * left_m:.0f} mm")


def past_the_segment(folder: Path, bed: FleetBed) -> FaultFinding | None:
    """Every policy's process drives out of the space that it announces: each guard brakes within it."""
    folder.mkdir(parents=True)
    fleet = write_fleet(folder, bed=bed)
    limits = {robot.name: segment_limits(robot.spec).radius_m for robot in fleet.robots}
    with FleetHarness(folder, fleet, bed=bed, module=_UNRESERVED) as harness:
        heard, farthest_m = harness.observer.robots, -math.inf
        try:
            _drive_until_refused(harness, "segment")
        except StalledError:
            return None
        except HarnessError as error:
            return FaultFinding(False, None, str(error))
        for name, limit_m in limits.items():
            truth = [reading.position_world for _, reading in heard[name].truth]
            farthest_m = max(farthest_m, max(math.dist(place, truth[0]) for place in truth) - limit_m)
    return FaultFinding(farthest_m <= 0, None, f"{-1e3 * farthest_m:.0f} mm left to where its peers keep clear")


def station_lost(folder: Path, bed: FleetBed) -> FaultFinding | None:
    """The emergency stop of the station dies in a fleet that requires its heartbeat."""
    folder.mkdir(parents=True)
    fleet = write_fleet(folder, bed=bed)
    save_fleet(replace(fleet, estop_heartbeat_s=_HEARTBEAT_S), fleet.file)
    with FleetHarness(folder, load_fleet(fleet.file), bed=bed) as harness:
        try:
            harness.wait_until_all_drive()
            return brakes(harness, harness.send("emergency_stop", signal.SIGKILL), code="station_lost")
        except StalledError:
            return None
        except HarnessError as error:
            return FaultFinding(False, None, str(error))


def joystick_lost(folder: Path, bed: FleetBed) -> FaultFinding | None:
    """The joystick whose button somebody holds falls silent."""
    folder.mkdir(parents=True)
    fleet = write_fleet(folder, bed=bed)
    save_fleet(replace(fleet, hold_to_run=_SWITCH), fleet.file)
    with FleetHarness(folder, load_fleet(fleet.file), bed=bed) as harness:
        processes = harness.processes
        with Joystick(processes.domain_id, processes.environment(), _SWITCH.topic) as joystick:
            guards = [harness.observer.robots[name] for name in fleet.names]
            try:
                harness.wait(lambda: all(guard.guard_code for guard in guards), "a guard was not heard")
                time.sleep(_SEEN_RELEASED_S)
                joystick.set([0, 1])
                harness.wait_until_all_drive()
                fault_s = time.monotonic()
                joystick.kill()
                return brakes(harness, fault_s, code="not_held")
            except StalledError:
                return None
            except HarnessError as error:
                return FaultFinding(False, None, str(error))


ROWS = (
    FaultRow(
        33,
        "the policy's process sends past its shield, at a wall",
        "the guard brakes; no body touches the wall",
        None,
        past_the_shield,
        fleet="own",
    ),
    FaultRow(34, "the station is lost", "brake, latched", _HEARTBEAT_S, station_lost, fleet="own"),
    FaultRow(
        35,
        "the policy's process drives out of its reserved segment",
        "the guard brakes inside the space that peers keep clear",
        None,
        past_the_segment,
        fleet="own",
    ),
    FaultRow(39, "the hold-to-run joystick falls silent", "brake", _SWITCH.silent_s, joystick_lost, fleet="own"),
)
