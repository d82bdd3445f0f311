"""A fleet whose robots and station are computers of their own; its bodies are one world on the plant.

Every computer starts its part of the launch plan as its user does, with ``backend`` hw: what moves the robots is not
its matter. The plant and the cables to it stand for bodies and drivers, and use none of the shaped network.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.client import Client
from std_srvs.srv import Trigger

from testudo_bench.hosts.body_cables import Ends
from testudo_bench.hosts.computers import Computers
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.child_processes import CpuKeepAwake, FleetProcesses, ProcessEvent, free_domain_id
from testudo_deploy.launch.launch_plan import ProcessPlan, plan
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.qos import REQUESTED

STATION = "station"
DOMAIN = 42
_STOP_S = 6.0


class HostsError(TestudoError):
    """The fleet on several computers did not do what was asked of it."""


class PartProcesses(FleetProcesses):
    """Processes of a plan, each on its computer."""

    def __init__(self, computers: Computers, parts: Sequence[ProcessPlan]) -> None:
        super().__init__(parts, domain_id=DOMAIN, local=False)
        self._computers = computers

    def command(self, process: ProcessPlan) -> tuple[list[str], dict[str, str]]:
        """Return the command line of a process on its computer, and its environment."""
        words, environment = super().command(process)
        computer = self._computers.all[process.namespace or STATION]
        return computer.words(words), environment | computer.environment


class FleetOnComputers:
    """The bodies of a fleet, and its processes unless they are started by somebody else; a context manager."""

    def __init__(
        self,
        fleet: Fleet,
        computers: Computers,
        *,
        limit_s: float,
        seed: int = 0,
        module: str = "",
        start_parts: bool = True,
    ) -> None:
        """Prepare.

        ``computers`` are one for each robot, by its name, and `STATION`. ``module`` replaces that of the policies.
        ``limit_s`` is the longest time from the first command of all robots to the arrival of all.
        """
        self.fleet, self.computers = fleet, computers
        parts = [*plan(fleet, run_folder=None, backend="hw", station=True)] if start_parts else []
        for name in fleet.names if start_parts else ():
            parts += plan(fleet, run_folder=None, backend="hw", robot=name)
        if module:
            parts = [replace(part, module=module) if part.name == "policy" else part for part in parts]
        self.parts = PartProcesses(computers, parts)
        simulated = plan(fleet, run_folder=None, seed=seed, duration_s=limit_s)
        self.plant = FleetProcesses([part for part in simulated if part.name == "plant"], domain_id=free_domain_id())
        self._cables: subprocess.Popen[str] | None = None
        self._awake = CpuKeepAwake()
        self.events: list[ProcessEvent] = []
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._awake.__enter__()
            self._lay_cables()
            self.parts.__enter__()
            self.plant.__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.parts.stop()
        if self._cables is not None:
            self._cables.send_signal(signal.SIGINT)
            try:
                self._cables.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._cables.kill()
        self.plant.stop()
        self._take()
        self._awake.__exit__()

    @property
    def contacts(self) -> list[dict[str, Any]]:
        """Return the contacts of all physics steps."""
        self._take()
        return [dict(event.values) for event in self.events if event.kind == "contact"]

    @property
    def state(self) -> dict[str, Any]:
        """Return the plant's last account of the run."""
        self._take()
        found = [event.values for event in self.events if event.kind in ("state", "finished")]
        return dict(found[-1]) if found else {}

    @property
    def outcome(self) -> str:
        """Return how the run ended; empty while it goes on."""
        self._take()
        return next((event.values["outcome"] for event in self.events if event.kind == "finished"), "")

    def wait(self, condition: Callable[[], Any], what: str, patience_s: float) -> None:
        """Wait until ``condition()`` holds.

        Raises:
            HostsError: it does not.
        """
        end_s = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > end_s:
                self._take()
                raise HostsError(
                    f"waited {patience_s:g} s: {what}" + "".join(f"\n  {line}" for line in self.lines[-8:])
                )
            time.sleep(0.05)

    def _take(self) -> None:
        for processes in (self.plant, self.parts):
            while (event := processes.next_event(0)) is not None:
                if event.kind == "error_line":
                    self.lines.append(f"{event.process}: {event.values['text']}")
                else:
                    self.events.append(event)

    def _lay_cables(self) -> None:
        robots = {
            name: {
                "namespace": f"/run/netns/{computer.namespace}",
                "steady_s": computer.clocks.steady_s,
                "environment": {k: v for k, v in computer.environment.items() if k.startswith(("ROS_", "FAST"))},
            }
            for name, computer in self.computers.all.items()
            if name != STATION
        }
        given = {"plant_domain": self.plant.domain_id, "domain": DOMAIN, "computers": robots}
        self._cables = subprocess.Popen(
            [sys.executable, "-m", "testudo_bench.hosts.body_cables", json.dumps(given)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._cables.stdout is not None
        if not self._cables.stdout.readline():
            raise HostsError("the cables between computers and bodies could not be laid; see the lines above")


class Operator:
    """Somebody at the station who sees the modes of all robots, and arms and starts those that wait for it."""

    def __init__(self, fleet: Fleet, computers: Computers) -> None:
        station = computers.all[STATION]
        before = dict(os.environ)
        self._ends = Ends("operator", f"/run/netns/{station.namespace}", DOMAIN, station.environment)
        os.environ.clear()
        os.environ.update(before)
        node = self._ends.node
        assert node is not None
        self.modes = dict.fromkeys(fleet.names, "")
        self.changes: list[tuple[float, str, str, str]] = []
        """Steady clock [s], policy or guard of a robot, mode and reason code, at each change that arrived."""
        self.requests = 0
        self._asked: dict[str, dict[str, tuple[Client, Any]]] = {}
        self._last: dict[str, tuple[str, str]] = {}
        for name in fleet.names:
            for topic, of in (("mode", "policy"), ("guard_status", "guard")):
                node.create_subscription(DiagnosticStatus, f"/{name}/{topic}", self._hear(name, of), REQUESTED[topic])
            order = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_ACTIVATE))
            self._asked[name] = {
                "idle": (node.create_client(ChangeState, f"/{name}/policy/change_state"), order),
                "armed": (node.create_client(Trigger, f"/{name}/policy/start"), Trigger.Request()),
            }

    def close(self) -> None:
        """Leave."""
        self._ends.context.try_shutdown()
        self._ends.join(2.0)

    def restart(self, name: str) -> bool:
        """Ask for the next step towards driving; return whether the mode needs one."""
        asked = self._asked[name].get(self.modes[name])
        if asked is not None:
            self.requests += 1
            asked[0].call_async(asked[1])
        return asked is not None

    def _hear(self, name: str, node: str) -> Callable[[DiagnosticStatus], None]:
        def on_status(message: DiagnosticStatus) -> None:
            values = status_values(message)
            now = (values.get("mode", ""), values.get("code", ""))
            if node == "policy":
                self.modes[name] = now[0]
            if self._last.get(f"{name}/{node}") != now:
                self._last[f"{name}/{node}"] = now
                self.changes.append((time.monotonic(), f"{name}/{node}", *now))

        return on_status
