"""`testudo status`: what the robots of a fleet say of themselves, in the terminal."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from testudo_deploy.commands.report import Report
from testudo_deploy.commands.status_table import status_table
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus, silence_sentence, status_values
from testudo_nodes.station.ros_availability import fleet_listener

_NOTHING = 1
_REFRESH_S = 0.25
_PATIENCE_S = 5.0


def status(
    fleet: Path | None = None,
    once: bool = False,
    wait: float = _PATIENCE_S,
    domain: int | None = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Show a fleet: mode of each robot and why, guard, age of its data, rates, interventions, late ticks, battery.

    Robots are found by the topics that they publish. The table is live until Ctrl-C; with --once, with --json, or where
    there is no terminal, it is printed once. The exit status is then 0 only if a robot was heard.

    Example:
        testudo status --once

    Args:
        fleet: a fleet file; its robots are shown even if they are not heard.
        once: print one table and end.
        wait: longest time to listen before the table is printed once [s].
        domain: ROS_DOMAIN_ID; left out, that of the environment.
        local: hear fleets of this machine only, as `testudo up` starts them.
        json: also write the values to this file; prints once.
    """
    names = () if fleet is None else load_fleet(fleet).names
    view = _View(FleetStatus(names), ros_domain_id(domain), local)
    console = Console()
    with fleet_listener("status", view.heard, view.domain_id, local=local) as listener:
        if once or json is not None or not console.is_terminal:
            listener.listen(wait, enough=lambda: view.heard.is_complete)
            return view.show_once(json)
        with Live(view.now(), console=console, auto_refresh=False) as live:
            while True:
                listener.listen(_REFRESH_S)
                live.update(view.now(), refresh=True)


class _View:
    """What is shown of what was heard."""

    def __init__(self, heard: FleetStatus, domain_id: int, local: bool) -> None:
        self.heard, self.domain_id, self.local = heard, domain_id, local
        self._begin_s = time.monotonic()

    def now(self) -> RenderableType:
        """Return what to show now."""
        now_s = time.monotonic()
        if self.heard.is_silent and now_s - self._begin_s > _PATIENCE_S:
            return self._silence(now_s)
        return status_table(self.heard.robots(now_s), self.domain_id)

    def show_once(self, json: Path | None) -> int:
        """Print a table, and write the values; returns the exit status."""
        now_s = time.monotonic()
        robots = self.heard.robots(now_s)
        tables = (status_table(robots, self.domain_id),) if robots else ()
        Report(status_values(robots, self.domain_id), tables).show(json)
        if not self.heard.is_silent:
            return 0
        Console().print(self._silence(now_s), soft_wrap=True)
        return _NOTHING

    def _silence(self, now_s: float) -> Text:
        return Text(silence_sentence(now_s - self._begin_s, self.domain_id, local=self.local), "red")
