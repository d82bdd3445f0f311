"""The processes that a fleet needs; pure. `testudo up`, the launch files and the tests start what `plan` returns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testudo_deploy.fleet.hold_switch import hold_option
from testudo_deploy.launch.topic_names import ARRIVED
from testudo_hardware.errors import TestudoError

if TYPE_CHECKING:  # an operator's verb starts without reading robot files
    from testudo_deploy.fleet.fleet import Fleet

PACKAGE = "testudo_nodes"
_ROOMS = {"policy": "robot", "guard": "robot", "driver": "robot", "plant": "plant"}
"""Sub-package of each kind of node; all other kinds are in `station`."""
SUPERVISOR_VARIABLE = "TESTUDO_SUPERVISOR"
"""Environment variable that holds the process id of the supervisor that started a node."""
ENCLAVES = "/testudo"  # parent of all sros2 enclaves of a fleet
BACKENDS = ("sim", "hw")
LEVELS = ("debug", "info", "warn", "error")
WATCHERS = ("task", "markers")
"""Nodes of the station that score the task, and draw for RViz and Foxglove. Robots depend on the task node where the
fleet file has a task, which starts it in any case; on the other one nothing does."""
_FREE = ("emergency_stop", "markers")  # in lock-step they run in real time: nothing waits for them
DEFAULT_DURATION_S = 60.0
TASK_DURATION_S = 3600.0
"""Time-out of a fleet whose task ends the run by its own length: only for a task node that has died."""
MOST_SEED = 2**31 - 1
LEAST_DURATION_S, MOST_DURATION_S = 0.1, 86400.0

ParameterValue = bool | int | float | str
_Node = tuple[str, str, dict[str, ParameterValue]]  # kind, namespace and own parameters of a node


@dataclass(frozen=True)
class ProcessPlan:
    """One process: a node of a ROS 2 package that is also a Python module."""

    name: str  # node name, unique in the plan together with the namespace
    package: str
    executable: str
    module: str
    namespace: str  # without a leading slash; empty for the root
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict[str, ParameterValue])
    arguments: tuple[str, ...] = ()  # further words after `--ros-args`

    @property
    def label(self) -> str:
        """Return the name of the process in the plan: `r0/policy`, `plant`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def enclave(self) -> str:
        """Return the sros2 enclave, such as `/testudo/r0/guard`."""
        return f"{ENCLAVES}/{self.label}"

    @property
    def enclave_arguments(self) -> list[str]:
        """Return the words after `--ros-args` that name the enclave; without ROS 2 security they have no effect."""
        return ["--enclave", self.enclave]


PLANT_FLIES = "plant_flies"
"""Parameter of guard and policy of a drone on the plant: requests and states go by our own topics."""


def plan(
    fleet: Fleet,
    *,
    run_folder: Path | None,
    backend: str = "sim",
    seed: int = 0,
    duration_s: float | None = None,
    log_level: str = "warn",
    robot: str = "",
    station: bool = False,
    watch: Sequence[str] = (),
    lock_step: bool = False,
) -> tuple[ProcessPlan, ...]:
    """Return the processes of a fleet: emergency stop, recorder, plant, station, then guard and policy of each robot.

    A real robot whose link has a driver of this project gets that, too, before its guard; the plant needs none.

    On several computers each starts a part: a robot's computer the processes of ``robot``, the station the rest. All
    parts together are the whole plan, which is returned if neither is asked for.

    Args:
        fleet: the robots and their policy.
        run_folder: where the recorder writes; None records nothing.
        backend: ``sim`` starts the plant in place of the robots, ``hw`` leaves them to their drivers.
        seed: seed of the plant.
        duration_s: time-out of the run on the plant; by default a minute, or `TASK_DURATION_S` for a task that ends.
        log_level: of every node.
        robot: only the processes of this robot.
        station: only the processes that belong to no robot.
        watch: further nodes of the station, from `WATCHERS`.
        lock_step: the plant serves lock-step on simulated time, see `testudo_deploy.launch.lock_step`; else real time.

    Raises:
        TestudoError: unknown backend, log level, robot or watcher, a value out of range, robot and station together, or
            lock-step without the plant.
    """
    if duration_s is None:
        duration_s = DEFAULT_DURATION_S if fleet.task is None or fleet.orders else TASK_DURATION_S
    _check(backend, log_level, seed, duration_s, watch)
    if robot and station:
        raise TestudoError(f"station: found true with robot {robot!r}, expected one of the two")
    if robot:
        fleet.robot(robot)
    common: dict[str, ParameterValue] = {
        "fleet": str(fleet.file.absolute()),
        "policy": str(fleet.policy),
        "backend": backend,
    }
    nodes: list[_Node] = [("emergency_stop", "", {}), *_station_nodes(run_folder, backend, seed, duration_s)]
    nodes += [(kind, "", {}) for kind in WATCHERS if kind in watch or (kind == "task" and fleet.task is not None)]
    nodes += _robot_nodes(fleet, backend)
    if lock_step:
        _add_lock_step(nodes, backend)
    arguments = ("--log-level", log_level)
    whole = not robot and not station
    return tuple(
        ProcessPlan(kind, PACKAGE, f"{kind}_node", node_module(kind), namespace, common | own, arguments)
        for kind, namespace, own in nodes
        if whole or namespace == robot
    )


def with_button(processes: Sequence[ProcessPlan], button: str) -> tuple[ProcessPlan, ...]:
    """Return a plan whose emergency stop has a button, see `testudo_deploy.station.button_device.button_choice`."""
    return tuple(
        replace(process, parameters={**process.parameters, "button": button})
        if button and process.name == "emergency_stop"
        else process
        for process in processes
    )


def with_emulation(processes: Sequence[ProcessPlan], *, emulates: bool) -> tuple[ProcessPlan, ...]:
    """Return a plan whose plant has noise, ages, time-outs and quirks of the link profiles (`[emulation]`).

    Guard and policy of a drone then speak with it as with the real one, for example by services of Crazyswarm2.
    """
    if not emulates:
        return tuple(processes)
    return tuple(
        replace(process, parameters={**process.parameters, "emulate": True})
        if process.name == "plant"
        else replace(process, parameters={k: v for k, v in process.parameters.items() if k != PLANT_FLIES})
        for process in processes
    )


def with_calibration(
    processes: Sequence[ProcessPlan], robot: str, *, driven: int = 0, longest_s: float = 0.0
) -> tuple[ProcessPlan, ...]:
    """Return a plan with the node that drives a robot through its calibration, before the guard of that robot.

    ``driven`` segments of the plan are driven already; the rest lasts ``longest_s`` [s] at most.
    """
    guard = next(process for process in processes if process.label == f"{robot}/guard")
    own = {"driven": driven, "longest_s": float(longest_s)}
    kind = "calibration"
    node = replace(
        guard,
        name=kind,
        executable=f"{kind}_node",
        module=node_module(kind),
        parameters={**guard.parameters, **own},
    )
    found: list[ProcessPlan] = []
    for process in processes:
        if "lock_step_nodes" in process.parameters:
            labels = f"{process.parameters['lock_step_nodes']} {node.label}"
            found.append(replace(process, parameters={**process.parameters, "lock_step_nodes": labels}))
        else:
            found += [node, process] if process is guard else [process]
    return tuple(found)


def with_hold_to_run(processes: Sequence[ProcessPlan], switch: str, *, whole: bool = True) -> tuple[ProcessPlan, ...]:
    """Return a plan whose emergency stop and guards have a hold-to-run switch, see `testudo_deploy.fleet.hold_switch`.

    Raises:
        TestudoError: the switch is none; it is for a part of the plan, so that the guards of the others would not know
            of it; or the plan is in lock-step.
    """
    if hold_option(switch) is None:
        return tuple(processes)
    if not whole:
        raise TestudoError(
            f"hold_to_run: found {switch!r} for a part of the fleet, expected it in the fleet file, for all guards"
        )
    if any(process.parameters.get("lock_step") for process in processes):
        raise TestudoError(f"hold_to_run: found {switch!r} with lock_step, expected real time: nobody holds it there")
    return tuple(
        replace(process, parameters={**process.parameters, "hold_to_run": switch})
        if process.name in ("emergency_stop", "guard")
        else process
        for process in processes
    )


def with_trial(processes: Sequence[ProcessPlan], trial: Mapping[str, Any] | None) -> tuple[ProcessPlan, ...]:
    """Return a plan whose task node leads the robots to the starts of a trial first; None: without one.

    ``trial`` is what `testudo_sim.online_task.trial_start.TrialStart` reads.
    """
    if trial is None:
        return tuple(processes)
    text = json.dumps(trial, allow_nan=False)
    return tuple(
        replace(process, parameters={**process.parameters, "trial": text}) if process.name == "task" else process
        for process in processes
    )


def with_until(processes: Sequence[ProcessPlan], until: str, *, orders: bool) -> tuple[ProcessPlan, ...]:
    """Return a plan that ends when every robot is at the last of its goals, if ``until`` is `ARRIVED`; empty: as it is.

    Raises:
        TestudoError: another word, or a fleet without ``orders``, or a part of it without the task node.
    """
    if not until:
        return tuple(processes)
    if until != ARRIVED:
        raise TestudoError(f"until: found {until!r}, expected {ARRIVED}")
    if not orders or not any(process.name == "task" for process in processes):
        raise TestudoError(
            f"until: found {until!r} for a fleet without `orders: true`, expected one with it: "
            "others end when all have arrived, or with their task"
        )
    return tuple(
        replace(process, parameters={**process.parameters, "until": until}) if process.name == "task" else process
        for process in processes
    )


def node_module(kind: str) -> str:
    """Return the Python module that runs a kind of node."""
    return f"{PACKAGE}.{_ROOMS.get(kind, 'station')}.{kind}_node"


def _robot_nodes(fleet: Fleet, backend: str) -> list[_Node]:
    """Return the nodes that belong to robots."""
    nodes: list[_Node] = []
    for name in fleet.names:
        if backend == "hw" and fleet.robot(name).link.profile.driver is not None:
            nodes.append(("driver", name, {"robot": name}))
        own: dict[str, ParameterValue] = {"robot": name, "policy": str(fleet.team_of(name).policy)}
        if backend == "sim" and fleet.robot(name).has_flight_phases:
            own[PLANT_FLIES] = True
        nodes += [("guard", name, own), ("policy", name, own | {"configure": True})]
    return nodes


def _station_nodes(run_folder: Path | None, backend: str, seed: int, duration_s: float) -> list[_Node]:
    """Return the nodes that belong to no robot."""
    nodes: list[_Node] = []
    if run_folder is not None:
        nodes.append(("recorder", "", {"run_folder": str(run_folder.absolute()), "seed": seed}))
    if backend == "sim":
        plant: dict[str, ParameterValue] = {
            "seed": seed,
            "duration_s": float(duration_s),
            "recorded": run_folder is not None,
        }
        nodes.append(("plant", "", plant))
    return [*nodes, ("station", "", {})]


def _add_lock_step(nodes: Sequence[_Node], backend: str) -> None:
    """Set simulated time on all nodes, and give the plant the nodes to wait for; it waits for none of `_FREE`.

    Raises:
        TestudoError: there is no plant.
    """
    if backend != "sim":
        raise TestudoError(f"lock_step: found backend {backend!r}, expected sim: real robots do not wait")
    labels = [
        f"{namespace}/{kind}" if namespace else kind for kind, namespace, _ in nodes if kind not in ("plant", *_FREE)
    ]
    for kind, _, own in nodes:
        if kind == "plant":
            own.update(lock_step=True, lock_step_nodes=" ".join(labels))
        else:
            own.update({"use_sim_time": True} | ({} if kind in _FREE else {"lock_step": True}))


def ros_arguments(process: ProcessPlan) -> list[str]:
    """Return the words after the program that give a node its name, namespace and parameters."""
    words = ["--ros-args", "-r", f"__node:={process.name}", "-r", f"__ns:=/{process.namespace}"]
    for key, value in process.parameters.items():
        words += ["-p", f"{key}:={_yaml_value(value)}"]
    return [*words, *process.arguments]


def _check(backend: str, log_level: str, seed: int, duration_s: float, watch: Sequence[str]) -> None:
    if backend not in BACKENDS:
        raise TestudoError(f"backend: found {backend!r}, expected one of {', '.join(BACKENDS)}")
    if log_level not in LEVELS:
        raise TestudoError(f"log_level: found {log_level!r}, expected one of {', '.join(LEVELS)}")
    if not 0 <= seed <= MOST_SEED:
        raise TestudoError(f"seed: found {seed}, expected a whole number from 0 to {MOST_SEED}")
    if not LEAST_DURATION_S <= duration_s <= MOST_DURATION_S:
        raise TestudoError(
            f"duration_s: found {duration_s:g}, expected a time-out from {LEAST_DURATION_S:g} to {MOST_DURATION_S:g} s"
        )
    unknown = set(watch) - set(WATCHERS)
    if unknown:
        raise TestudoError(f"watch: found {', '.join(sorted(unknown))}, expected some of {', '.join(WATCHERS)}")


def _yaml_value(value: ParameterValue) -> str:
    """Return the value as YAML that ROS reads back with the same type, also for a text like `1`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return repr(value)
