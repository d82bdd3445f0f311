"""The station of real robots for several runs: emergency stop and bring-up stay, recorder and task come with each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import FleetRunError, FleetRunInterruptedError, FleetRunState, take_rest
from testudo_deploy.launch.launch_plan import ProcessPlan, plan

_STAYS, _COMES = ("emergency_stop", "station"), ("recorder", "task")
_LISTEN_S = 0.1
SILENT = "task_silent"
"""Outcome of a run whose task node did not end it in time."""


class StationSession:
    """The processes of the station; a context manager. Guards and policies run on the robots, with their own files."""

    def __init__(self, fleet: Fleet, domain_id: int, *, local: bool) -> None:
        """Prepare; with ``local`` only robots on this machine are reached."""
        self._domain_id, self._local = domain_id, local
        self._stays = self._processes(fleet, None, _STAYS)

    def __enter__(self) -> Self:
        self._stays.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stays.stop()

    def run(
        self,
        fleet: Fleet,
        run_folder: Path,
        adapt: Callable[[Sequence[ProcessPlan]], Sequence[ProcessPlan]],
        duration_s: float,
        show: Callable[[FleetRunState], None],
    ) -> FleetRunState:
        """Record a run until its task ends; at the end the robots brake, as nothing sends them the task's signals.

        Args:
            fleet: the robots, with the task.
            run_folder: where to record.
            adapt: changes the plan, see `fleet_run.run_fleet`.
            duration_s: longest time [s].
            show: called with the state several times a second.

        Raises:
            FleetRunError: a process of the station died.
            FleetRunInterruptedError: Ctrl-C; holds the final state.
        """
        processes = self._processes(fleet, run_folder, _COMES, adapt)
        state = FleetRunState(fleet.names, run_folder=run_folder, domain_id=self._domain_id)
        try:
            with processes:
                _listen((processes, self._stays), state, time.monotonic() + duration_s, show)
        except KeyboardInterrupt as error:
            state.outcome = "interrupted"
            take_rest(processes, state)
            raise FleetRunInterruptedError(state) from error
        take_rest(processes, state)
        show(state)
        return state

    def _processes(
        self,
        fleet: Fleet,
        run_folder: Path | None,
        kinds: Sequence[str],
        adapt: Callable[[Sequence[ProcessPlan]], Sequence[ProcessPlan]] = tuple,
    ) -> FleetProcesses:
        planned = plan(fleet, run_folder=run_folder, backend="hw", station=True)
        chosen = adapt([process for process in planned if process.name in kinds])
        return FleetProcesses(chosen, domain_id=self._domain_id, local=self._local)


def _listen(
    groups: Sequence[FleetProcesses], state: FleetRunState, end_s: float, show: Callable[[FleetRunState], None]
) -> None:
    """Take the events of all groups until the task ends; the end of any process, the emergency stop too, is an error.

    Raises:
        FleetRunError: a process ended.
    """
    while not state.outcome:
        for processes in groups:
            event = processes.next_event(_LISTEN_S / len(groups))
            if event is None:
                continue
            state.take(event)
            state.started |= event.kind == "task_started"
            if event.kind == "task_finished":
                state.outcome = event.values["outcome"]
            elif event.kind == "ended":
                take_rest(processes, state)
                last = f": {state.lines[-1]}" if state.lines else ""
                raise FleetRunError(f"{event.process} ended during a run{last}")
        if time.monotonic() > end_s:
            state.outcome = SILENT
        show(state)
