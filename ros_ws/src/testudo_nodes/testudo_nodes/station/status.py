"""`testudo status`: shows the state of a fleet in the terminal."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testudo_deploy.commands.report import Report
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus, RobotStatus, silence_sentence, status_values
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.operator_listener import fleet_listener

_FAILED = 1
_REFRESH_S = 0.25
_SILENCE_S = 5.0
MODE_STYLES = {
    "active": "green",
    "armed": "cyan",
    "idle": "dim",
    "holding": "yellow",
    "stopped": "bold red",
    "fault": "bold red",
    "disarmed": "dim",
    "take_off": "cyan",
    "hold": "cyan",
    "land": "yellow",
    "emergency": "bold red",
}
"""Style of each mode; an unknown mode is shown like a fault."""
_OLD_S = 0.5  # greater ages are shown in red
_COLUMNS = ("robot", "mode", "why", "guard", "pose age", "peers' age", "ticks/s", "commands/s", "shield", "late ticks")


def status(
    fleet: Path | None = None,
    once: bool = False,
    wait: float = _SILENCE_S,
    domain: int | None = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Show a fleet: mode of each robot and why, guard, age of its data, rates, interventions, late ticks, battery.

    Robots are found by their topics. The table is live until Ctrl-C; with --once, with --json, or without a terminal,
    it is printed once. The exit status is then 0 only if a robot was heard.

    Example:
        testudo status --once

    Args:
        fleet: a fleet file; its robots are shown even if they are not heard.
        once: print one table and end.
        wait: longest time to listen before the table is printed once [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
        json: also write the values to this file; prints once.
    """
    raise_priority(PRIORITIES["viewer"])
    names = () if fleet is None else load_fleet(fleet).names
    view = _View(FleetStatus(names), ros_domain_id(domain), local)
    console = Console()
    with fleet_listener("status", view.fleet, view.domain_id, local=local) as listener:
        if once or json is not None or not console.is_terminal:
            listener.listen(wait, enough=lambda: view.fleet.is_complete)
            return view.show_once(json)
        with Live(view.now(), console=console, auto_refresh=False) as live:
            while True:
                listener.listen(_REFRESH_S)
                live.update(view.now(), refresh=True)


class _View:
    """The tables and texts of a fleet."""

    def __init__(self, fleet: FleetStatus, domain_id: int, local: bool) -> None:
        self.fleet, self.domain_id, self.local = fleet, domain_id, local
        self._begin_s = time.monotonic()

    def now(self) -> RenderableType:
        """Return the present table, or a hint if no robot is heard."""
        now_s = time.monotonic()
        if self.fleet.is_silent and now_s - self._begin_s > _SILENCE_S:
            return self._silence(now_s)
        return status_table(self.fleet.robots(now_s), self.domain_id)

    def show_once(self, json: Path | None) -> int:
        """Print a table, and write the values; return the exit status."""
        now_s = time.monotonic()
        robots = self.fleet.robots(now_s)
        tables = (status_table(robots, self.domain_id),) if robots else ()
        Report(status_values(robots, self.domain_id), tables).show(json)
        if not self.fleet.is_silent:
            return 0
        Console().print(self._silence(now_s), soft_wrap=True)
        return _FAILED

    def _silence(self, now_s: float) -> Text:
        return Text(silence_sentence(now_s - self._begin_s, self.domain_id, local=self.local), "red")


def status_table(robots: Sequence[RobotStatus], domain_id: int) -> Table:
    """Return the robots as a table; the column of batteries is left out if there is none.

    "shield" is the share of ticks in which the shield intervened.
    """
    batteries = any(robot.battery for robot in robots)
    title = f"Fleet of {len(robots)} (ROS_DOMAIN_ID={domain_id})"
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for index, column in enumerate((*_COLUMNS, *(("battery",) if batteries else ()))):
        made.add_column(
            column,
            justify="left" if index < 4 else "right",
            no_wrap=index != 2,
            overflow="fold" if index == 2 else "ellipsis",
        )
    for robot in robots:
        cells = (
            Text(robot.name),
            _mode(robot),
            _why(robot),
            _guard(robot),
            _age(robot.pose_age_s),
            _age(robot.peer_age_s),
            _rate(robot.tick_rate_hz),
            _rate(robot.command_rate_hz),
            _share(robot.interventions, robot.ticks),
            _count(robot.late_ticks, robot.ticks),
        )
        made.add_row(*cells, *((Text(robot.battery or "-"),) if batteries else ()))
    return made


def _mode(robot: RobotStatus) -> Text:
    if not robot.mode:
        return Text("not heard", "bold red")
    if robot.is_silent:
        return Text(f"silent, was {robot.mode}", "bold red")
    shown = f"{robot.mode}, {robot.holds.replace('_', ' ')}" if robot.holds else robot.mode
    return Text(shown, MODE_STYLES.get(robot.mode, "bold red"))


def _why(robot: RobotStatus) -> Text:
    if robot.is_silent:
        since = "" if robot.heard_age_s is None else f"nothing heard for {robot.heard_age_s:.0f} s"
        return Text(since, "red")
    if not robot.code:
        return Text("")
    # sentences begin with their code
    return Text(robot.sentence if robot.code in robot.sentence else f"{robot.code}: {robot.sentence}")


def _guard(robot: RobotStatus) -> Text:
    if robot.guard is None:
        return Text("silent", "bold red")
    return Text(f"brakes: {robot.guard}", "yellow") if robot.guard else Text("passes", "green")


def _age(age_s: float | None) -> Text:
    if age_s is None:
        return Text("-")
    return Text(f"{1000 * age_s:.0f} ms" if age_s < 10 else f"{age_s:.0f} s", "red" if age_s > _OLD_S else "")


def _rate(rate_hz: float | None) -> Text:
    return Text("-" if rate_hz is None else f"{rate_hz:.1f}")


def _share(part: int | None, whole: int | None) -> Text:
    return Text("-" if part is None or not whole else f"{100 * part / whole:.1f} %")


def _count(late: int | None, ticks: int | None) -> Text:
    if late is None:
        return Text("-")
    return Text(str(late) if not ticks or not late else f"{late} ({100 * late / ticks:.2g} %)")
