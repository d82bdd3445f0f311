"""`testudo up`: runs a fleet on ROS 2 on this machine."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testudo_deploy.authentication.fleet_key import NO_KEY
from testudo_deploy.commands.report import Report, facts, table, warn
from testudo_deploy.contract.shipped_policies import fleet_beside, policy_file, shipped_text
from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.fleet_run import FleetRunInterruptedError, FleetRunState, run_fleet
from testudo_deploy.launch.launch_plan import (
    ProcessPlan,
    with_button,
    with_emulation,
    with_hold_to_run,
    with_until,
)
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.thrust_margin import thrust_warnings

_FAILED = 1
_REFRESH_HZ = 4
_PLAIN_PERIOD_S = 5.0


@dataclass(frozen=True)
class BesideFleet:
    """Further nodes and devices of the station, what the plant does in place of robots, and when a job is done."""

    watch: tuple[Literal["task", "markers"], ...] = ()
    """Also start the node that scores the task, or the one that draws for RViz and Foxglove."""
    button: str = ""
    """Button of the emergency stop: a USB device such as /dev/input/event3, of which every key stops the fleet, or
    topic and button of a joystick, such as /joy:1."""
    hold_to_run: str = ""
    """Topic and button of a joystick, such as /joy:4, which somebody must hold for the robots to move."""
    until: Literal["", "arrived"] = ""
    """`arrived`: a fleet with `orders: true` ends once every robot is at the last of its goals; by default it goes on
    to the time-out."""
    emulate: bool = False
    """Give the plant the noise, ages, time-outs and quirks that the link profiles state of real robots."""

    def adapt(self, processes: Sequence[ProcessPlan], fleet: Fleet) -> Sequence[ProcessPlan]:
        """Return a fleet's plan with these devices, the emulation, and the end of its job."""
        held = with_hold_to_run(with_button(processes, self.button), self.hold_to_run)
        return with_until(with_emulation(held, emulates=self.emulate), self.until, orders=fleet.orders)


_NOTHING_BESIDE = BesideFleet()


def up(
    fleet: Path | None = None,
    policy: Path | None = None,
    run: Path | None = None,
    seed: Annotated[int, tyro.conf.arg(metavar="INT")] = 0,
    timeout: float | None = None,
    record: bool = True,
    beside: Annotated[BesideFleet, tyro.conf.arg(name="")] = _NOTHING_BESIDE,
    lock_step: bool = False,
    domain: int | None = None,
    json: Path | None = None,
) -> int:
    """Drive a fleet over ROS 2 on this machine, with the plant in place of robots, and record the run.

    Ends when all robots have been at their goals for 1 s, or the task of the fleet file ends, at the time-out, or at
    Ctrl-C; the exit status is 0 only if all arrived, or the task succeeded, without a contact.

    Example:
        testudo up --policy policy.onnx --fleet fleet.yaml
        testudo up --policy foraging     (a policy that ships, with its fleet file)
        testudo up --fleet fleet.yaml --watch task markers --domain 7
        testudo up --fleet fleet.yaml --lock-step
        testudo up --fleet fleet.yaml --until arrived --timeout 600     (with `orders: true`)

    Args:
        fleet: the fleet file: robots, types, initial poses, goals; by default fleet.yaml beside the policy file.
        policy: the policy file, or the name of one that ships; by default the one that the fleet file names.
        run: the run folder to write; by default a dated folder in runs/.
        seed: seed of the plant: dynamics, noise, latency.
        timeout: time-out [s] from the start, or a task's first decision; by default 60 s, or the task's own length.
        record: write the run folder.
        beside: the fleet.
        lock_step: run on simulated time; the plant waits for every robot: the same seed gives the same run, as fast as
            the machine allows.
        domain: ROS_DOMAIN_ID; by default one that is free on this machine.
        json: also write the result to this file.
    """
    loaded = _fleet(fleet, policy)
    warn(thrust_warnings(robot.spec for robot in loaded.robots))
    warn([] if loaded.key_file is not None or lock_step else [NO_KEY])
    folder = (run or dated_folder("runs")) if record else None
    console = Console()
    try:
        with _Display(console) as display:
            state = run_fleet(
                loaded,
                run_folder=folder,
                seed=seed,
                duration_s=timeout,
                watch=beside.watch,
                adapt=lambda plan: beside.adapt(plan, loaded),
                lock_step=lock_step,
                domain_id=None if domain is None else ros_domain_id(domain),
                show=display.show,
            )
    except FleetRunInterruptedError as stopped:
        _show_result(console, stopped.state, json)
        raise
    _show_result(console, state, json)
    return 0 if state.success else _FAILED


def _fleet(file: Path | None, policy: Path | None) -> Fleet:
    """Return the fleet of a file, by default the one beside the policy file; and with that policy, if one is given."""
    if policy is None:
        if file is None:
            raise TestudoError(f"up: found neither --fleet nor --policy, expected one of them; {shipped_text()}")
        return load_fleet(file)
    chosen = policy_file(policy)
    beside = fleet_beside(chosen)
    if file is None and not beside.is_file():
        raise TestudoError(f"--policy {policy}: found no {beside}, expected a fleet file there, or --fleet")
    return replace(load_fleet(file or beside), policy=chosen.absolute())


def _show_result(console: Console, state: FleetRunState, json: Path | None) -> None:
    for line in state.lines:
        console.print(Text(line, style="yellow"))
    result_report(state).show(json)
    if state.run_folder is not None:
        console.print(
            Text(
                f"recorded {state.recorded_messages} messages in {state.run_folder}; read them "
                f"with `testudo replay {state.run_folder}`"
            ),
            soft_wrap=True,
        )
        if state.chain_hash:
            console.print(Text(f"its last hash, to be kept elsewhere: {state.chain_hash}"), soft_wrap=True)
        for folder, (messages, chain_hash) in state.later_runs.items():
            console.print(Text(f"after a change of the policy {messages} messages in {folder}, last hash {chain_hash}"))


def result_values(state: FleetRunState) -> dict[str, Any]:
    """Return the result of a run as JSON values."""
    return {
        "success": state.success,
        "outcome": state.outcome,
        "time_s": state.time_s,
        "contacts": state.contacts,
        "minimum_separation_m": state.separation_m if math.isfinite(state.separation_m) else None,
        "closest_robots": list(state.closest),
        "task": state.figures,
        "distance_to_goal_m": state.distance_m,
        "ticks": state.ticks,
        "late_ticks": state.late_ticks,
        "cpu_share": state.cpu_share,
        "real_time_factor": state.real_time_factor,
        "recorded_messages": state.recorded_messages,
        "run_hash": state.chain_hash,
        "run_folder": None if state.run_folder is None else str(state.run_folder),
        "later_runs": {folder: values[1] for folder, values in state.later_runs.items()},
    }


def result_report(state: FleetRunState) -> Report:
    """Return the result of a run as tables and JSON values."""
    values = result_values(state)
    shown = {
        "outcome": state.outcome,
        "time [s]": state.time_s,
        "simulated time over real time": state.real_time_factor,
        "contacts": state.contacts,
        "smallest separation [m]": values["minimum_separation_m"],
        "between": " and ".join(state.closest),
        **{f"task: {name}": value for name, value in state.figures.items()},
    }
    robots = [
        (
            name,
            state.distance_m.get(name),
            state.ticks.get(name),
            state.late_ticks.get(name),
            state.braked.get(name, ""),
        )
        for name in state.robots
    ]
    columns = ("robot", "to the goal [m]", "ticks", "late ticks", "braked for")
    return Report(values, (facts("Run", shown), table("Robots", columns, robots)))


class _Display:
    """Shows a run: live on a terminal, else one line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=_REFRESH_HZ, transient=True)
        self._next_s = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, state: FleetRunState) -> None:
        """Show the state, at most at the refresh rate."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        if self._console.is_terminal:
            self._next_s = now_s + 1 / _REFRESH_HZ
            self._live.update(_live_view(state))
        else:
            self._next_s = now_s + _PLAIN_PERIOD_S
            self._console.print(_headline(state))


def _headline(state: FleetRunState) -> Text:
    if not state.started:
        return Text(f"starting {len(state.robots)} robots (ROS_DOMAIN_ID={state.domain_id}) ...")
    far = max(state.distance_m.values(), default=None)
    way = "" if far is None else f"farthest from goal {far:.2f} m   "
    figures = "".join(f"   {name} {value:.4g}" for name, value in state.figures.items())
    apart = f"{state.separation_m:.3f} m" if math.isfinite(state.separation_m) else "-"
    return Text(
        f"{state.time_s:5.1f} s   {way}contacts {state.contacts}   smallest separation {apart}{figures}",
        style="red" if state.contacts else "",
    )


def _live_view(state: FleetRunState) -> Group:
    view = Table(box=None, pad_edge=False)
    for column in ("robot", "to the goal [m]", ""):
        view.add_column(Text(column), justify="right" if "[m]" in column else "left")
    for name in state.robots:
        distance = state.distance_m.get(name)
        view.add_row(name, "" if distance is None else f"{distance:.2f}", state.braked.get(name, ""))
    return Group(_headline(state), view)
