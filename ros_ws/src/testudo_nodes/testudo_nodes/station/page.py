"""`testudo station`: the station page of a running fleet, in a browser on this computer."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.admission.fleet_admission import world_arena
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_deploy.station_page.fleet_picture import fleet_values
from testudo_deploy.station_page.server import PageServer
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.goal import OrderAnswers, order_publisher
from testudo_nodes.station.operator_listener import fleet_listener
from testudo_nodes.station.operator_requests import Operator
from testudo_nodes.station.page_desk import PageDesk
from testudo_nodes.station.quick_stop import StopOrder

DEFAULT_PORT = 8750
_PICTURE_S = 0.2
_WAIT_S = 10.0  # longest time for a robot's answer
_STOP_WAIT_S = 5.0
_MOST_PORT = 65535


def station(
    fleet: tyro.conf.Positional[Path],
    port: int = DEFAULT_PORT,
    runs: Path = Path("runs"),
    policy: Path | None = None,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Serve the station page of a fleet: map, modes, emergency stop, goals by click, recorded runs, in a browser.

    Prints the address, which holds a key: who has it can command the robots as this user. Only this computer can open
    it. The emergency stop of the page goes the way of `testudo estop`; goals, arm, start, pause and rearm that of the
    verbs of these names. It ends with Ctrl-C; the fleet does not depend on it.

    Example:
        testudo station fleet.yaml

    Args:
        fleet: the fleet file.
        port: port of the page on 127.0.0.1; 0 takes one that is free.
        runs: the folder of recorded runs that the page lists.
        policy: the policy file with the arena; by default the one that the fleet file names.
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    if not 0 <= port <= _MOST_PORT:
        raise TestudoError(f"--port: found {port}, expected 0 to {_MOST_PORT}")
    found, domain_id = load_fleet(fleet), ros_domain_id(domain)
    if policy is not None:
        found = replace(found, policy=policy_file(policy).absolute())
    values = fleet_values(found, world_arena(found), domain_id)
    stop_order = StopOrder(fleet.absolute(), wait=_STOP_WAIT_S, domain=domain_id, local=local)
    desk, heard = PageDesk(found, values, stop_order, runs), PageMessages(found.names)
    with fleet_listener("station", heard, domain_id, local=local) as listener, PageServer(desk, port) as server:
        raise_priority(PRIORITIES["viewer"])
        Console().print(Text(f"station page: {server.access.address}"), soft_wrap=True)
        serve(found, desk, heard, listener, stop_order)
    return 0


class PageMessages(FleetStatus, OrderAnswers):
    """The status of all robots, when each battery was heard, and answers to orders."""

    def __init__(self, robots: tuple[str, ...]) -> None:
        """Begin without any message."""
        FleetStatus.__init__(self, robots)
        OrderAnswers.__init__(self)
        self.battery_s: dict[str, float] = {}

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Take a battery state."""
        super().on_battery(robot, share, voltage_v)
        self.battery_s[robot] = time.monotonic()


def serve(fleet: Fleet, desk: PageDesk, heard: PageMessages, listener: Any, stop_order: StopOrder) -> None:
    """Receive messages, carry out requests and post pictures, until an exception ends it; Ctrl-C is one."""
    from testudo_nodes.common.node_runner import WARN_EVERY_S  # noqa: PLC0415 -- the listener has found ROS
    from testudo_nodes.station.page_view import PageView  # noqa: PLC0415

    orders = order_publisher(listener.node, fleet, heard) if fleet.orders else None
    operator, view = Operator(listener, heard, _WAIT_S), PageView(fleet, heard, listener.node, stop_order)
    next_s = 0.0
    while True:
        listener.listen(max(next_s - time.monotonic(), 0.0), enough=lambda: desk.is_due)
        desk.advance(operator, orders, heard, view.position_world)
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _PICTURE_S
            try:
                desk.board.post(json.dumps(view.picture(desk.answers), allow_nan=False, separators=(",", ":")))
            except Exception as error:  # noqa: BLE001 -- the page turns grey, and keeps its emergency stop
                text = f"no picture for the station page: {type(error).__name__}: {error}"
                listener.node.get_logger().error(text, throttle_duration_sec=WARN_EVERY_S)
