"""One run of a fleet on this machine, from the start of its processes to the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.admission.safety_contracts import save_safety_contracts
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.child_processes import FleetProcesses, ProcessEvent
from testudo_deploy.launch.launch_plan import ProcessPlan, plan
from testudo_deploy.launch.topic_names import ARRIVED, ENDED, SUCCESS
from testudo_hardware.errors import TestudoError

_LISTEN_S = 0.1
_KEPT_LINES = 50
_SILENCE_S = 45.0  # a plant that reports nothing for this time hangs
_START_S = 120.0  # the same before its first report: on a full computer the processes take a minute to start
_END_EVENTS_S = 0.5


class FleetRunError(TestudoError):
    """The fleet could not be started: a node refused or died; the text holds its last error line."""


class FleetRunInterruptedError(KeyboardInterrupt):
    """Ctrl-C during the run; all processes are stopped and the run folder is closed."""

    def __init__(self, state: FleetRunState) -> None:
        super().__init__("the fleet was stopped by Ctrl-C")
        self.state = state


@dataclass
class FleetRunState:
    """State of a run while it lasts, and after it; mappings by robot."""

    robots: tuple[str, ...]
    started: bool = False
    outcome: str = ""
    """Empty during the run; then arrived, success (of a task that the station runs), timeout, not_at_start (of a
    trial), not_started, plant_died, plant_silent, stalled (in lock-step a node did not answer) or interrupted."""
    time_s: float = 0.0  # since the start; after the end the time at which the last robot arrived
    distance_m: dict[str, float] = field(default_factory=dict)  # distance to the goal
    contacts: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    """Of the task that the station runs or scores, so far: mean return of a robot, and counts; empty without one."""
    separation_m: float = math.inf  # smallest distance between the centres of two robots so far
    closest: tuple[str, ...] = ()  # the two robots with this distance
    braked: dict[str, str] = field(default_factory=dict)
    """Reason for which a robot brakes now; robots that drive are left out."""
    ticks: dict[str, int] = field(default_factory=dict)
    late_ticks: dict[str, int] = field(default_factory=dict)  # ticks that began more than 10 ms late or not at all
    cpu_share: dict[str, float] = field(default_factory=dict)  # share of one core, by process, start-up included
    task_result: dict[str, Any] = field(default_factory=dict)
    """What the task node said at the end of its task; empty without one, and before."""
    recorded_messages: int = 0
    later_runs: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """By folder of each run after a change of the policy: its messages, and the last hash of its chain."""
    chain_hash: str = ""  # last hash of the closed run's chain, to be kept elsewhere
    real_time_factor: float | None = None  # simulated time over real time, from the start of the plant to its end
    run_folder: Path | None = None
    lines: list[str] = field(default_factory=list)  # lines that the processes wrote on standard error
    domain_id: int = 0

    @property
    def success(self) -> bool:
        """Return whether all arrived, the task succeeded, or an open end was reached, without any contact."""
        return self.outcome in (ARRIVED, SUCCESS, ENDED) and self.contacts == 0

    def take(self, event: ProcessEvent) -> None:
        """Update the state with an event of one of the processes."""
        values = event.values
        if event.kind == "error_line":
            self.lines = [*self.lines, f"{event.process}: {values['text']}"][-_KEPT_LINES:]
        elif event.kind == "started":
            self.started = True
        elif event.kind in ("state", "finished"):
            self._take_state(values)
            self.outcome = values.get("outcome", self.outcome)
        elif event.kind == "brake":
            self.braked.pop(values["robot"], None)
            if values["reason"]:
                self.braked[values["robot"]] = values["reason"]
        elif event.kind == "summary":
            self.ticks[values["robot"]] = values["ticks"]
            self.late_ticks[values["robot"]] = values["late_ticks"] + values["missed_ticks"]
        elif event.kind == "recorded":
            self._take_recorded(values)
        elif event.kind == "plant":
            self.real_time_factor = values["real_time_factor"]
        self.figures = dict(values.get("figures", self.figures))
        self.task_result = dict(values) if event.kind == "task_finished" else self.task_result
        if "cpu_share" in values:
            self.cpu_share[event.process] = values["cpu_share"]

    def _take_recorded(self, values: Mapping[str, Any]) -> None:
        """Take the end of a recorded run; after a change of the policy others follow the first one."""
        folder = values.get("run_folder", "")
        if folder and self.run_folder is not None and Path(folder) != self.run_folder.absolute():
            self.later_runs[folder] = (values["messages"], values.get("hash", ""))
        else:
            self.recorded_messages, self.chain_hash = values["messages"], values.get("hash", "")

    def _take_state(self, values: Mapping[str, Any]) -> None:
        if self.outcome:  # the plant continues, but the result is final
            return
        self.time_s, self.contacts = values["time_s"], values["contacts"]
        self.distance_m = dict(values["distance_m"])
        if values["separation_m"] is not None:
            self.separation_m, self.closest = values["separation_m"], tuple(values["closest"])


def run_fleet(
    fleet: Fleet,
    *,
    run_folder: Path | None,
    seed: int = 0,
    duration_s: float | None = None,
    watch: Sequence[str] = (),
    adapt: Callable[[Sequence[ProcessPlan]], Sequence[ProcessPlan]] = tuple,
    lock_step: bool = False,
    domain_id: int | None = None,
    show: Callable[[FleetRunState], None] | None = None,
) -> FleetRunState:
    """Start the fleet with the plant, wait until it has arrived or the time-out, stop it.

    Args:
        fleet: the robots and their policy.
        run_folder: where to record; None records nothing.
        seed: seed of the plant.
        duration_s: time-out from the start [s]; by default see `launch_plan.plan`.
        watch: further nodes of the station, from `testudo_deploy.launch.launch_plan.WATCHERS`.
        adapt: changes the plan, as `launch_plan.with_button`, `with_hold_to_run` and `with_trial` do.
        lock_step: lock-step on simulated time instead of real time.
        domain_id: the ROS domain; None takes a free one.
        show: called with the state several times a second.

    Raises:
        TestudoError: the fleet may not start (`checked_safety_contracts`), or a node refused or died before the start.
        FleetRunInterruptedError: Ctrl-C; holds the final state.
    """
    obligations = checked_safety_contracts(fleet)  # one refusal here is clearer than one from each process
    show = show or (lambda _: None)
    planned = plan(fleet, run_folder=run_folder, seed=seed, duration_s=duration_s, watch=watch, lock_step=lock_step)
    processes = FleetProcesses(
        adapt(planned),
        domain_id=domain_id,
    )
    state = FleetRunState(fleet.names, run_folder=run_folder, domain_id=processes.domain_id)
    try:
        with processes:
            _listen(processes, state, show)
    except KeyboardInterrupt as error:
        state.outcome = "interrupted"
        take_rest(processes, state)
        raise FleetRunInterruptedError(state) from error
    finally:
        if run_folder is not None and state.started:  # the recorder has opened the folder, so it held no run before
            save_safety_contracts(run_folder, obligations)
    take_rest(processes, state)
    show(state)
    return state


def _listen(processes: FleetProcesses, state: FleetRunState, show: Callable[[FleetRunState], None]) -> None:
    plant_event_s, patience_s = time.monotonic(), _START_S
    while not state.outcome:
        event = processes.next_event(_LISTEN_S)
        if time.monotonic() - plant_event_s > patience_s:
            state.outcome = "plant_silent"
        if event is None:
            show(state)
            continue
        if event.process == "plant":
            plant_event_s, patience_s = time.monotonic(), _SILENCE_S
        state.take(event)
        if event.kind == "ended":
            _handle_process_end(processes, event.process, state)
        if event.kind != "error_line":
            show(state)


def _handle_process_end(processes: FleetProcesses, label: str, state: FleetRunState) -> None:
    """Before the start, the end of any process ends the run; later only that of the plant."""
    if not state.started:
        take_rest(processes, state)
        lines = [line for line in state.lines if line.startswith(f"{label}: ")]
        raise FleetRunError(f"{label} ended before the start" + (f": {lines[-1]}" if lines else ""))
    if label == "plant":
        state.outcome = "plant_died"
    else:
        state.lines.append(f"{label}: ended during the run (exit status {processes.exit_status(label)})")


def take_rest(processes: FleetProcesses, state: FleetRunState) -> None:
    """Take the last events; processes that still run are not waited for."""
    end_s = time.monotonic() + _END_EVENTS_S
    while (event := processes.next_event(_LISTEN_S)) is not None and time.monotonic() < end_s:
        if event.kind != "ended":
            state.take(event)
