"""Brings a fleet up: arms every robot, then starts all; the logic is in `testudo_deploy.station.fleet_bring_up`.

A robot that was active once, or that an operator stopped or deactivated, is never started by this node again: after a
stop, a fault or a restart, of the robot or of the station, only an operator starts it.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.client import Client
from rclpy.node import Node
from rclpy.task import Future
from std_srvs.srv import Trigger

from testudo_deploy.authentication.fleet_key import NO_KEY
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.launch_plan import SUPERVISOR_VARIABLE
from testudo_deploy.station.fleet_bring_up import BringUp, Request
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.node_runner import CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.qos import REQUESTED

_STEP_S = 0.1
_SERVICE_TIMEOUT_S = 5.0
_SERVICES: dict[Request, tuple[Any, str]] = {
    Request.ACTIVATE: (ChangeState, "change_state"),
    Request.START: (Trigger, "start"),
}
_WARN_S = 15.0  # time for the start on a slow machine, before the station warns which robots are not ready


class StationNode(Node):
    """The node of the station."""

    def __init__(self, _stop: Future) -> None:
        """Subscribe to the modes of the robots.

        Raises:
            TestudoError: the fleet is refused.
        """
        super().__init__("station")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        text_parameter(self, "policy", "the policy file")
        self._node_clock = clock_of(self)
        secure(self, self._node_clock, fleet, backend_of(self))
        if fleet.key_file is None and SUPERVISOR_VARIABLE not in os.environ:  # `testudo up` reports it
            self.get_logger().warning(NO_KEY)
        starts = parameter(self, "start", True, "start the robots once all are armed")
        self._bring_up = BringUp(fleet.names, fleet.untrusted, starts=starts)
        self._modes: dict[str, tuple[str, str]] = {}
        self._informed = not starts
        """Whether the operator has been asked to start the robots."""
        self._requests: dict[tuple[str, Request], Client] = {}
        for name in fleet.names:
            for kind in Request:
                self._make_client(name, kind)
            self._node_clock.subscribe(DiagnosticStatus, f"/{name}/mode", self._mode_callback(name), REQUESTED["mode"])
        self._warn_s = self._node_clock.now_s() + _WARN_S
        self._timer = self._node_clock.every(_STEP_S, self._step)
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Report the processor time."""
        report_status("station", {"cpu_share": self._cpu.share()})

    def _mode_callback(self, name: str) -> Callable[[DiagnosticStatus], None]:
        def on_mode(message: DiagnosticStatus) -> None:
            values = status_values(message)
            mode, code = values.get("mode", ""), values.get("code", "")
            past = {key: values.get(key) == "true" for key in ("was_active", "flew", "by_hand")}
            self._bring_up.on_mode(name, mode, code, message.message, lost=values.get("lost", ""), **past)
            if self._modes.get(name) != (mode, code):
                self._modes[name] = (mode, code)
                report_status("mode", {"robot": name, "mode": mode, "code": code, "sentence": message.message})
            self._step()

        return on_mode

    def _step(self) -> None:
        now_s = self._node_clock.now_s()
        if self._bring_up.needs_operator and not self._informed:
            self._informed = True
            self.get_logger().warning(
                "an operator must start the robots: testudo rearm ROBOT --start, or the service ~/start of each policy"
            )
        if not self._node_clock.in_lock_step:
            for name, request in self._bring_up.withdrawn(now_s):
                self.destroy_client(self._requests[name, request])  # DDS repeats nothing of a client that is gone
                self._make_client(name, request)
        for name, request in self._bring_up.next_requests(now_s):
            self._call(name, request)
        if now_s >= self._warn_s and not self._bring_up.done:
            self._warn_s = now_s + _WARN_S
            for name, sentence in self._bring_up.missing.items():
                self.get_logger().warning(f"{name} is not ready: {sentence}")

    def _make_client(self, name: str, request: Request) -> None:
        kind, service = _SERVICES[request]
        self._requests[name, request] = self.create_client(kind, f"/{name}/policy/{service}")

    def _call(self, name: str, request: Request) -> None:
        client = self._requests[name, request]
        if self._node_clock.in_lock_step:  # requested at the same time in every run
            client.wait_for_service(_SERVICE_TIMEOUT_S)
        if not client.service_is_ready():
            self._bring_up.on_answer(name)
            return
        order = Trigger.Request()
        if request is Request.ACTIVATE:
            order = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_ACTIVATE))
        future = client.call_async(order)
        future.add_done_callback(lambda _: self._bring_up.on_answer(name))
        self._node_clock.wait_for(future)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(StationNode))


if __name__ == "__main__":
    main()
