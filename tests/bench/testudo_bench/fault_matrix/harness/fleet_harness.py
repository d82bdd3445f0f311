"""A fleet on the plant for fault injection, with a node that observes all topics and relays those of a fault."""

import math
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from testudo_bench.fault_matrix.harness.faulty_policy import VARIABLE
from testudo_bench.fault_matrix.harness.faulty_task import SUFFIX
from testudo_bench.fault_matrix.harness.fleet_bed import FAST_ROBOT_FILE, OWN_BED, ROBOT_FILE, FleetBed
from testudo_bench.fault_matrix.harness.relay_observer import RELAYED, Observer, relayed_topic
from testudo_deploy.commands.security import add_key
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.pose_source import sensed_topics
from testudo_deploy.launch.child_processes import FleetProcesses, ProcessEvent
from testudo_deploy.launch.launch_plan import ParameterValue, ProcessPlan, plan
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy

FAST_SPACING_M = 3.0
FAR_M = 1000.0
_ROUNDING_M = 1e-3  # a goal on which the body leaves the arena is refused
PATIENCE_S = 30.0
BEGINS_S = 120.0  # in which the processes of a fleet begin, on a machine with other work
UP_TO_SPEED_S = 0.4
_DECIDES_S = 5.0
SWAP_RADIUS_M = 1.0
SWAP_HEIGHT_M = 1.5
_PER_RADIUS = 2.2  # clearances between starts on a circle of robots that swap places, as in the protocol of the shield
_NEXT_REQUEST = {"idle": "activate", "armed": "start", "stopped": "rearm", "fault": "deactivate"}
"""Request by which an operator brings a robot from a mode towards driving."""
_LATCHED_CODES = ("brakes_weak", "no_response")  # Reason codes that stay latched until the policy process is restarted
_TIMES = re.compile(r"^((?:control_period|dead_man|pose_max_age) = \{ value = )([\d.]+)", re.MULTILINE)
_PLANT = {"latency_low_s": 0.01, "latency_high_s": 0.03}


class HarnessError(TestudoError):
    """The fleet did not react as required, for instance did not brake."""


class StalledError(HarnessError):
    """The fleet does not drive before the fault: on a stalled machine its robots brake correctly."""


def write_fleet(
    folder: Path,
    *,
    bed: FleetBed = OWN_BED,
    count: int = 3,
    tracking: bool = False,
    fast: bool = False,
    arena: Arena | None = None,
    keyed: bool = True,
    slower: float = 1.0,
    tasked: bool = False,
) -> Fleet:
    """Write robot, policy and fleet file into a folder, with a fleet key if ``keyed``, and return the fleet.

    The robots are those of the ``bed``; `fast`, `tracking`, `slower` and a key are for our own.

    With ``tasked`` the task node sends the goals. ``slower`` multiplies control period, dead-man time and oldest age of
    a pose: the fleet needs less of the machine.

    Goals are far away, or where a body touches a wall of the arena. Every robot drives along x = y: the policy limits
    each axis alone, so this direction gives top speed.
    """
    spacing_m = FAST_SPACING_M if fast else bed.spacing_m
    bed.write_files(folder)
    if bed is OWN_BED:
        robot = FAST_ROBOT_FILE if fast else ROBOT_FILE
        text = _TIMES.sub(lambda found: f"{found[1]}{slower * float(found[2]):g}", robot.read_text(encoding="utf-8"))
        (folder / "robot.toml").write_text(text, encoding="utf-8")
    spec = load_robot(folder / "robot.toml")
    far_m = FAR_M if arena is None else arena.high_world[0] - spec.body_radius_m - _ROUNDING_M
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, spec, arena=arena, team_size=count)
    robots = tuple(
        FleetRobot(
            f"r{k}",
            str(folder / "robot.toml"),
            (0.0, spacing_m * k),
            0.0 if fast else math.pi / 4,
            (far_m, spacing_m * k + far_m),
            spec,
        )
        for k in range(count)
    )
    tracking = tracking and bed is OWN_BED  # robots that localise themselves do not see each other
    fleet = bed.placed(_saved(folder, policy, robots, tracking=tracking, task={} if tasked else None))
    if not keyed or bed is not OWN_BED:
        return fleet
    add_key(fleet)
    return load_fleet(fleet.file)


def write_swap(folder: Path, *, count: int, turn_rad: float, robot: str = "") -> Fleet:
    """Write a fleet whose robots swap places across a circle that is rotated by ``turn_rad``, and return it.

    ``robot`` is a name or file, or empty for the robot of the harness. Drones swap at one height.
    """
    kind = str(Path(robot).absolute()) if robot.endswith(".toml") else robot
    if not robot:
        kind = str(folder / "robot.toml")
        Path(kind).write_text(ROBOT_FILE.read_text(encoding="utf-8"), encoding="utf-8")
    spec = load_robot(kind)
    policy = folder / "policy.onnx"
    write_go_to_goal_policy(policy, spec, team_size=count)
    radius_m = max(SWAP_RADIUS_M, count * stop_tube_parameters(spec).clearance_m / _PER_RADIUS)
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


def _saved(
    folder: Path,
    policy: Path,
    robots: tuple[FleetRobot, ...],
    *,
    tracking: bool = False,
    task: dict[str, Any] | None = None,
) -> Fleet:
    file = folder / "fleet.yaml"
    save_fleet(Fleet(file, policy, PolicyArtefact.load(policy).sha256, robots, tracking, task=task), file)
    return load_fleet(file)


class FleetHarness:
    """A driving fleet and the operations that faults need; a context manager.

    Robot r0 receives its odometry and its peers' messages through relays, and its policy fails on request. With
    ``module``, the policy of every robot, all robots receive peers through relays, odometry is direct, and all ticks
    are stored.
    """

    def __init__(
        self,
        folder: Path,
        fleet: Fleet,
        *,
        run_folder: Path | None = None,
        plant: Mapping[str, ParameterValue] | None = None,
        module: str = "",
        bed: FleetBed = OWN_BED,
    ) -> None:
        self.fleet, self.folder, self.bed = fleet, folder, bed
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

    @property
    def task_fault_file(self) -> Path:
        """Return the file of requests to the task node, see `faulty_task`."""
        return Path(f"{self._fault_file}{SUFFIX}")

    @property
    def tick_s(self) -> float:
        """Return the control period of the robots [s]."""
        return self.fleet.robots[0].spec.control_period_s

    def process(self, label: str) -> ProcessPlan:
        """Return the plan of one process."""
        return next(process for process in self.plan if process.label == label)

    def wait(
        self,
        condition: Callable[[], Any],
        what: str,
        patience_s: float = PATIENCE_S,
        error: type[HarnessError] = HarnessError,
    ) -> Any:
        """Wait until ``condition()`` is true and return its value.

        Raises:
            HarnessError: it stays false; the text names mode and reason code of each robot.
        """
        end_s = time.monotonic() + patience_s
        while not (value := condition()):
            if self.observer.failure is not None:
                raise HarnessError("the observer ended with an error") from self.observer.failure
            if time.monotonic() > end_s:
                raise error(f"waited {patience_s:g} s: {what} ({self._modes()})")
            time.sleep(0.002)
        return value

    def _modes(self) -> str:
        """Return the mode of each robot, and the last reason codes of its policy and guard."""
        return ", ".join(
            f"{name} {heard.mode} {heard.code or 'no code'}, guard {heard.guard_code or 'no code'}"
            for name, heard in self.observer.robots.items()
        )

    def wait_until_all_drive(self) -> None:
        """Remove all injected faults, bring every robot to driving, and wait until all are up to speed.

        Raises:
            StalledError: they do not come up to speed.
        """
        self.observer.pass_everything()
        self._fault_file.unlink(missing_ok=True)
        self.task_fault_file.unlink(missing_ok=True)
        for name in self.fleet.names:
            self.bring_up(name)
        for name in self.fleet.names:
            self.wait(
                lambda name=name: self.observer.drives(name, UP_TO_SPEED_S),
                f"{name} does not drive",
                error=StalledError,
            )

    def bring_up(self, name: str) -> None:
        """Arm and start a robot as an operator does, until it drives.

        On a stalled machine the driver brakes late and the robot correctly reports weak brakes: restart its process.

        Raises:
            HarnessError: its policy's process has ended.
            StalledError: it does not come to drive.
        """
        heard = self.observer.robots[name]
        self.wait(lambda: heard.mode or self._ended(name), f"{name} did not begin", BEGINS_S, StalledError)
        if heard.code in _LATCHED_CODES:
            self.restart_policy(name)

        def driving() -> bool:
            if self.request_next(name):
                time.sleep(0.2)
            return heard.mode == "active"

        # a task node compiles for long at its start
        patience_s = PATIENCE_S if self.fleet.task is None else BEGINS_S
        self.wait(driving, f"{name} could not be started", patience_s, StalledError)

    def _ended(self, name: str) -> bool:
        """Return False if the policy's process of a robot runs, and raise HarnessError with its last error if not."""
        status = self.processes.exit_status(f"{name}/policy")
        if status is None:
            return False
        lines = [event.values["text"] for event in self.events() if event.kind == "error_line"]
        raise HarnessError(f"the policy of {name} ended with status {status}: {lines[-1] if lines else 'no error'}")

    def request_next(self, name: str) -> bool:
        """Send the next request towards driving; return whether the mode needs one."""
        step = _NEXT_REQUEST.get(self.observer.robots[name].mode)
        if step is not None:
            self.observer.ask(name, step)
        return step is not None

    def fail_policy(self, fault: str) -> float:
        """Make the policy of r0 fail at its next decision; return the time of failure, steady clock [s].

        Raises:
            StalledError: it takes no decision, because the robot brakes.
        """
        while self.processes.next_event(0) is not None:
            pass
        whole = self._fault_file.with_suffix(".new")
        whole.write_text(fault, encoding="utf-8")
        whole.replace(self._fault_file)  # atomic: the policy reads the file at every tick and ignores half a fault
        end_s = time.monotonic() + _DECIDES_S
        while time.monotonic() < end_s:
            event = self.processes.next_event(0.1)
            if event is not None and event.kind == "fault":
                return event.values["stamp_s"]
        raise StalledError(f"the policy of r0 took no decision for {_DECIDES_S:g} s ({self._modes()})")

    def send(self, label: str, number: signal.Signals) -> float:
        """Send a signal to a process and return the time, steady clock [s]."""
        now_s = time.monotonic()
        self.processes.signal(label, number)
        return now_s

    def restart(self, label: str) -> None:
        """Restart a process after it has ended."""
        self.wait(lambda: self.processes.exit_status(label) is not None, f"{label} does not end")
        name, _, kind = label.partition("/")
        if kind == "policy":
            self.observer.robots[name].mode = ""  # the last mode came from the previous process
        self.processes.start(self.process(label))

    def restart_policy(self, name: str) -> None:
        """Restart the policy process of a robot, which clears latched reason codes."""
        epoch = self.observer.epochs.get(name)
        self.send(f"{name}/policy", signal.SIGKILL)
        self.restart(f"{name}/policy")
        self.wait_until_restarted(name, epoch)

    def wait_until_restarted(self, name: str, epoch: str | None) -> None:
        """Wait until the policy process of a robot has another epoch than ``epoch``.

        Raises:
            HarnessError: its policy's process has ended.
            StalledError: it runs, and says nothing: on a full machine its imports take longer.
        """

        def restarted() -> bool:
            return self.observer.epochs.get(name) != epoch or self._ended(name)

        self.wait(restarted, f"{name} did not restart", BEGINS_S, StalledError)

    def events(self) -> list[ProcessEvent]:
        """Return the events of the processes since the last call."""
        found = []
        while (event := self.processes.next_event(0)) is not None:
            found.append(event)
        return found

    def _rewired(self, process: ProcessPlan, plant: Mapping[str, ParameterValue]) -> ProcessPlan:
        if process.label == "plant":
            own = _PLANT if self.bed is OWN_BED else {"emulate": True}
            return replace(process, parameters={**process.parameters, **own, **plant})
        if process.name == "task":
            return replace(process, module="testudo_bench.fault_matrix.harness.faulty_task")
        if process.name != "policy" or process.namespace not in self._receivers:
            return process
        name = process.namespace
        remaps = [f"/{peer}/peer_state:={relayed_topic(peer, name)}" for peer in self.fleet.peers(name)]
        if not self._module:
            kinds = [topic.kind for topic in sensed_topics(self.fleet.robot(name))]
            remaps += [f"{kind}:={kind}_relayed" for kind in kinds if kind in RELAYED]
        words = [word for remap in remaps for word in ("-r", remap)]
        return replace(
            process,
            module=self._module or "testudo_bench.fault_matrix.harness.faulty_policy",
            arguments=(*process.arguments, *words),
        )
