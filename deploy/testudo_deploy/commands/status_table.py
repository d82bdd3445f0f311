"""The table of `testudo status`."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from testudo_deploy.station.fleet_status import RobotStatus

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
"""How modes are shown; any other one is as bad as a fault."""
_OLD_S = 0.5
"""Ages from here on are shown in red."""
_COLUMNS = ("robot", "mode", "why", "guard", "pose age", "peers' age", "ticks/s", "commands/s", "shield", "late ticks")


def status_table(robots: Sequence[RobotStatus], domain_id: int) -> Table:
    """Return the robots as a table; batteries are a column if there is any.

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
        made.add_row(*_cells(robot), *((Text(robot.battery or "-"),) if batteries else ()))
    return made


def _cells(robot: RobotStatus) -> tuple[Text, ...]:
    return (
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


def _mode(robot: RobotStatus) -> Text:
    if not robot.mode:
        return Text("not heard", "bold red")
    if robot.is_silent:
        return Text(f"silent, was {robot.mode}", "bold red")
    return Text(robot.mode, MODE_STYLES.get(robot.mode, "bold red"))


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
