"""Three robots on the plant, with a node that listens to everything and stands in its way where a fault says so."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from testudo_bench.fault_matrix.harness.faulty_policy import VARIABLE
from testudo_bench.fault_matrix.harness.relay_observer import Observer, relayed_topic
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.child_processes import FleetProcesses, ProcessEvent
from testudo_deploy.launch.launch_plan import ParameterValue, ProcessPlan, plan
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy

ROBOT_FILE, FAST_ROBOT_FILE = (Path(__file__).with_name(name) for name in ("robot.toml", "robot_fast.toml"))
LANE_M = 0.6
"""Between the robots' lanes: they never need each other's space, but each needs the others' word for its own."""
FAST_LANE_M = 3.0
FAR_M = 1000.0
PATIENCE_S = 30.0
UP_TO_SPEED_S = 0.4
_DECIDES_S = 5.0
SWAP_RADIUS_M = 1.0
SWAP_HEIGHT_M = 1.5
_PER_RADIUS = 2.2
"""Clearances between starts on a circle of robots that swap places, as in the protocol of the shield."""
_NEXT_STEP = {"idle": "activate", "armed": "start", "stopped": "rearm", "fault": "deactivate"}
"""What an operator asks of a robot in a mode, so that it drives in the end."""
_UNTIL_RENEWED = ("brakes_weak", "no_response")
"""What a robot remembers until an operator has looked and starts its process anew."""
_PLANT = {"latency_low_s": 0.01, "latency_high_s": 0.03}


class TestBedError(TestudoError):
    """The fleet did not do what a fault asks of it, for instance brake."""


class StalledError(TestBedError):
    """The fleet does not drive before the fault: on a machine that stalls, its robots are right to brake."""


def write_fleet(
    folder: Path, *, count: int = 3, goal_m: float = FAR_M, tracking: bool = False, fast: bool = False
) -> Fleet:
    """Write robot, policy and fleet file into a folder and return the fleet.

    Every robot drives along x = y, which is where the policy, axis by axis, asks for top speed.
    """
    robot, lane_m = (FAST_ROBOT_FILE, FAST_LANE_M) if fast else (ROBOT_FILE, LANE_M)
    spec = load_robot(robot)
    (folder / "robot.toml").write_text(robot.read_text(encoding="utf-8"), encoding="utf-8")
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, spec, team_size=count)
    robots = tuple(
        FleetRobot(
            f"r{k}",
            str(folder / "robot.toml"),
            (0.0, lane_m * k),
            0.0 if fast else math.pi / 4,
            (goal_m, lane_m * k + goal_m),
            spec,
        )
        for k in range(count)
    )
    return _saved(folder, policy, robots, tracking=tracking)


def write_swap(folder: Path, *, count: int, turn_rad: float, radius_m: float = SWAP_RADIUS_M, robot: str = "") -> Fleet:
    """Write a fleet whose robots stand on a circle and all want to the place across, and return it.

    Args:
        folder: where to.
        count: robots.
        turn_rad: of the circle.
        radius_m: of the circle, at least.
        robot: name or file; the bed's own if empty. Drones swap at one height.
    """
    kind = str(Path(robot).absolute()) if robot.endswith(".toml") else robot
    if not robot:
        kind = str(folder / "robot.toml")
        Path(kind).write_text(ROBOT_FILE.read_text(encoding="utf-8"), encoding="utf-8")
    spec = load_robot(kind)
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, spec, team_size=count)
    radius_m = max(radius_m, count * stop_tube_parameters(spec).clearance_m / _PER_RADIUS)
    robots = []
    for k in range(count):
        angle = turn_rad + 2 * math.pi * k / count
        place = (radius_m * math.cos(angle), radius_m * math.sin(angle))
        height = (SWAP_HEIGHT_M,) * (spec.dimension - len(place))
        robots.append(
            FleetRobot(
                f"r{k}",
                kind,
                (*place, *height),
                math.remainder(angle + math.pi, 2 * math.pi),
                (-place[0], -place[1], *height),
                spec,
            )
        )
    return _saved(folder, policy, tuple(robots))


def _saved(folder: Path, policy: Path, robots: tuple[FleetRobot, ...], *, tracking: bool = False) -> Fleet:
    file = folder / "fleet.yaml"
    save_fleet(Fleet(file, policy, PolicyArtefact.load(policy).sha256, robots, tracking), file)
    return load_fleet(file)


class TestBed:
    """A fleet that drives, and what may be done to it; a context manager.

    Robot r0 hears its own odometry and its peers through relays, and its policy can be told to fail. With a module
    for all policies every robot hears its peers through relays, nobody's odometry is touched, and all ticks are kept.
    """

    def __init__(
        self,
        folder: Path,
        fleet: Fleet,
        *,
        run_folder: Path | None = None,
        plant: Mapping[str, ParameterValue] | None = None,
        module: str = "",
    ) -> None:
        self.fleet, self.folder = fleet, folder
        self._module, self._receivers = module, fleet.names if module else ("r0",)
        self._fault_file = folder / "fault"
        self.plan = tuple(
            self._rewired(process, plant or {}) for process in plan(fleet, run_folder=run_folder, duration_s=3600.0)
        )
        self.processes = FleetProcesses(self.plan)
        os.environ[VARIABLE] = str(self._fault_file)  # the processes inherit it
        self.observer = Observer(
            fleet,
            self.processes.domain_id,
            self.processes.environment(),
            receivers=self._receivers,
            keep_ticks=bool(module),
        )

    def __enter__(self) -> Self:
        self.processes.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop()
        self.observer.close()

    def process(self, label: str) -> ProcessPlan:
        """Return the plan of one process."""
        return next(process for process in self.plan if process.label == label)

    def wait(
        self,
        condition: Callable[[], Any],
        what: str,
        patience_s: float = PATIENCE_S,
        error: type[TestBedError] = TestBedError,
    ) -> Any:
        """Wait until ``condition()`` is true and return its value.

        Raises:
            TestBedError: it never was; the text tells how the robots stand.
        """
        end_s = time.monotonic() + patience_s
        while not (value := condition()):
            if time.monotonic() > end_s:
                raise error(f"waited {patience_s:g} s in vain: {what} ({self._standing()})")
            time.sleep(0.002)
        return value

    def _standing(self) -> str:
        """Return the mode of each robot and the codes that it and its guard told last."""
        return ", ".join(
            f"{name} {heard.mode} {heard.code or 'well'}, guard {heard.guard_code or 'well'}"
            for name, heard in self.observer.robots.items()
        )

    def wait_until_all_drive(self) -> None:
        """Undo what disturbed the fleet, bring up whom an operator would, and wait until all are up to speed.

        Raises:
            StalledError: they do not come up to speed.
        """
        self.observer.pass_everything()
        self._fault_file.unlink(missing_ok=True)
        for name in self.fleet.names:
            self.bring_up(name)
        for name in self.fleet.names:
            self.wait(
                lambda name=name: self.observer.drives(name, UP_TO_SPEED_S), f"{name} never drove", error=StalledError
            )

    def bring_up(self, name: str) -> None:
        """Arm and start a robot as an operator does, as often as it takes; one that holds comes back by itself.

        On a machine that stalls the driver brakes late, and the robot is right to say so: its process starts anew.

        Raises:
            StalledError: it does not come to drive.
        """
        if self.observer.robots[name].code in _UNTIL_RENEWED:
            self.renew(name)

        def driving() -> bool:
            if self.urge(name):
                time.sleep(0.2)
            return self.observer.robots[name].mode == "active"

        self.wait(driving, f"{name} could not be started", error=StalledError)

    def urge(self, name: str) -> bool:
        """Ask a robot once for the next step towards driving; return whether there is one to ask for."""
        step = _NEXT_STEP.get(self.observer.robots[name].mode)
        if step is not None:
            self.observer.ask(name, step)
        return step is not None

    def tell_policy(self, fault: str) -> float:
        """Let the policy of r0 fail at its next decision; return when it did, on the steady clock [s].

        Raises:
            StalledError: it takes no decision, as a robot that brakes does not.
        """
        while self.processes.next_event(0) is not None:
            pass
        whole = self._fault_file.with_suffix(".new")
        whole.write_text(fault, encoding="utf-8")
        whole.replace(self._fault_file)  # at once: the policy looks at every tick, and would read half a fault as none
        end_s = time.monotonic() + _DECIDES_S
        while time.monotonic() < end_s:
            event = self.processes.next_event(0.1)
            if event is not None and event.kind == "fault":
                return event.values["stamp_s"]
        raise StalledError(f"the policy of r0 was not run for {_DECIDES_S:g} s ({self._standing()})")

    def send(self, label: str, number: signal.Signals) -> float:
        """Send a signal to a process and return when."""
        now_s = time.monotonic()
        self.processes.signal(label, number)
        return now_s

    def restart(self, label: str) -> None:
        """Start a process that ended once more."""
        self.wait(lambda: self.processes.exit_status(label) is not None, f"{label} lives on")
        name, _, kind = label.partition("/")
        if kind == "policy":
            self.observer.robots[name].mode = ""  # what was heard last was said by the former life
        self.processes.start(self.process(label))

    def renew(self, name: str) -> None:
        """Let the policy of a robot begin a new life, in which no fault of the former one is known."""
        epoch = self.observer.epochs.get(name)
        self.send(f"{name}/policy", signal.SIGKILL)
        self.restart(f"{name}/policy")
        self.wait(lambda: self.observer.epochs.get(name) != epoch, f"{name} did not come back")

    def events(self) -> list[ProcessEvent]:
        """Return what the processes told since the last call."""
        found = []
        while (event := self.processes.next_event(0)) is not None:
            found.append(event)
        return found

    def _rewired(self, process: ProcessPlan, plant: Mapping[str, ParameterValue]) -> ProcessPlan:
        if process.label == "plant":
            return replace(process, parameters={**process.parameters, **_PLANT, **plant})
        if process.name != "policy" or process.namespace not in self._receivers:
            return process
        name = process.namespace
        remaps = [f"/{peer}/peer_state:={relayed_topic(peer, name)}" for peer in self.fleet.peers(name)]
        if not self._module:
            remaps.append("odom:=odom_relayed")
        words = [word for remap in remaps for word in ("-r", remap)]
        return replace(
            process,
            module=self._module or "testudo_bench.fault_matrix.harness.faulty_policy",
            arguments=(*process.arguments, *words),
        )
