"""`testudo bench estop`: time from a key press to the last guard's confirmation of the emergency stop, at full load.

Each half runs in a process of its own, once with the rights of this user and once without real-time rights.
"""

import ctypes
import json
import os
import resource
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from testudo_bench.performance.fleet_timing import fleet_at_50_hz, plan_of, wait_until_active
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.guard.command_guard import STOP_CODES
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import with_button
from testudo_deploy.launch.topic_names import ESTOP_TOPIC
from testudo_deploy.station.stop_channel import RELEASE, StopClients
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, set_realtime_priority
from testudo_nodes.common.qos import OFFERED
from testudo_nodes.station.status_listener import StatusListener

_ROBOTS, _REPEATS, _QUICK = 4, 50, 3
BARS = {"button": 0.5, "resident": 0.5, "cold": 3.0}
"""Longest time [s]: from a key of a USB button, and from the start of `testudo estop` with the resident process and
without it."""
_SHOWN = {"button": "a button", "resident": "testudo estop, resident process", "cold": "testudo estop, cold"}
_WARM_UP_S, _PATIENCE_S, _DRIVING_S, _STEP_S = 5.0, 20.0, 0.5, 0.2
_DROP_CAPABILITY, _SYS_NICE = 24, 23  # prctl(2), capabilities(7)
_RIGHTS = ("with", "without")
_SPIN = """
import os
os.nice({nice})
if os.path.exists("/proc/self/autogroup"):
    open("/proc/self/autogroup", "w").write("{nice}")
while True: pass
"""
_NICENESS = 19
"""Of the processes that keep the cores busy, and of their sessions, which else get equal shares of a core: at a higher
priority they would keep robots without real-time rights from driving."""
_KEY_DOWN, _KEY_UP = (struct.pack("@llHHi", 0, 0, 1, 28, value) for value in (1, 0))  # input events of one key
_RECENTLY_S = 2.0
_MOST_RESTARTS = 10
"""Of the fleet in one case, because its robots did not drive again after a stop."""
_NEXT_REQUEST = {
    "idle": ("policy/change_state", ChangeState, lambda: _transition(Transition.TRANSITION_ACTIVATE)),
    "fault": ("policy/change_state", ChangeState, lambda: _transition(Transition.TRANSITION_DEACTIVATE)),
    "stopped": ("guard/rearm", Trigger, Trigger.Request),
    "armed": ("policy/start", Trigger, Trigger.Request),
}
"""By mode: the request of an operator that brings a robot towards driving."""


def bench_estop(*, repeats: int = _REPEATS, quick: bool = False, say: Callable[[str], None] = print) -> BenchResult:
    """Stop four driving robots while further processes of the lowest priority keep every core busy.

    By a key of a button, and by `testudo estop` with the resident process of the station and without it; each with
    real-time rights and without them. The time is from the key, or from the start of the command as from a shell, to
    the report of the last guard that it is stopped. The robots drive again before each stop.

    Args:
        repeats: stops in each of the six cases.
        quick: three stops in each.
        say: receives progress messages.
    """
    found: dict[str, Any] = {}
    for rights in _RIGHTS:
        if rights == "with" and not _may_schedule():
            say("this user has no real-time rights: only the half without them is run")
            continue
        found[rights] = _half(rights, _QUICK if quick else repeats, say)
    cases = [
        {"rights": rights, "command": command, **_figures(half[command], command)}
        for rights, half in found.items()
        for command in BARS
    ]
    columns = ("real-time rights", "pressed by", "stops", "median", "worst", "bar", "missed", "idle share of the cores")
    title = f"emergency stop of {_ROBOTS} driving robots, all cores busy"
    return BenchResult(title, columns, [_shown(case) for case in cases], {"cases": cases})


def _figures(series: Mapping[str, Any], command: str) -> dict[str, Any]:
    stops: Sequence[Mapping[str, Any]] = series["stops"]
    times = [stop["time_s"] for stop in stops if stop["time_s"] is not None]
    missed = sum(stop["time_s"] is None or stop["status"] != 0 for stop in stops)
    worst_s = max(times, default=None)
    return {
        "stops": len(stops),
        "idle_share": series["idle_share"],
        "restarts": series["restarts"],
        "times_s": times,
        "median_s": statistics.median(times) if times else None,
        "worst_s": worst_s,
        "missed": missed,
        "bar_s": BARS[command],
        "passed": bool(stops) and not missed and worst_s is not None and worst_s <= BARS[command],
    }


def _shown(case: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = ("-" if case[key] is None else f"{case[key]:.2f} s" for key in ("median_s", "worst_s"))
    command = _SHOWN[case["command"]]
    bar = f"≤ {case['bar_s']:g} s"
    idle = f"{100 * case['idle_share']:.0f} %"
    return (case["rights"], command, str(case["stops"]), *seconds, bar, str(case["missed"]), idle)


def _half(rights: str, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run both cases in a process with or without real-time rights.

    Raises:
        TestudoError: that process failed.
    """
    words = [sys.executable, "-m", __name__, str(repeats)]
    before = _give_up_rights if rights == "without" else None
    with subprocess.Popen(
        words,
        preexec_fn=before,  # noqa: PLW1509 -- no other thread holds a lock that it needs
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        found: dict[str, Any] = {}
        for line in process.stdout or ():
            if not line.startswith("{"):  # of ROS
                continue
            values = json.loads(line)
            found |= values.get("found", {})
            if "said" in values:
                say(f"{rights} real-time rights: {values['said']}")
    if process.returncode != 0 or not found:
        raise TestudoError(f"bench estop: the half {rights} real-time rights failed (exit status {process.returncode})")
    return found


def _give_up_rights() -> None:
    """Give up real-time scheduling and lower niceness, for this process and all that it starts."""
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    ctypes.CDLL(None).prctl(_DROP_CAPABILITY, _SYS_NICE, 0, 0, 0)


def _may_schedule() -> bool:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


@dataclass
class _Guards:
    """The newest reports of the robots; takes the messages of a `StatusListener`."""

    codes: dict[str, tuple[str, float]] = field(default_factory=dict)  # code of the guard, and arrival [s]
    modes: dict[str, str] = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)
    """What each policy says of its mode."""
    passed_s: dict[str, float] = field(default_factory=dict)  # the newest report that commands pass
    stopped_s: dict[str, float] = field(default_factory=dict)  # first report of the emergency stop

    def on_guard_status(self, robot: str, values: dict[str, str], received_s: float) -> None:
        self.codes[robot] = (values.get("code", "unreadable"), received_s)
        if values.get("code") == "":
            self.passed_s[robot] = received_s
        if values.get("code") == "estop":
            self.stopped_s.setdefault(robot, received_s)

    def on_mode(self, robot: str, sentence: str, values: dict[str, str], received_s: float) -> None:
        self.modes[robot], self.sentences[robot] = values.get("mode", ""), sentence

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        pass

    def have_driven(self, names: Sequence[str]) -> bool:
        """Return whether every robot drove within the last moments; without real-time rights they brake at times."""
        return all(time.monotonic() - self.passed_s.get(name, 0.0) < _RECENTLY_S for name in names)


def _transition(number: int) -> Any:
    return ChangeState.Request(transition=Transition(id=number))


class _NotDrivingError(TestudoError):
    """The robots of a fleet do not drive again after a stop."""


class _Fleet:
    """A driving fleet that is stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.fleet = fleet_at_50_hz(folder, _ROBOTS)
        self._key, device = os.openpty()  # in place of an input device
        tty.setraw(device)
        self.processes = FleetProcesses(with_button(plan_of(self.fleet, folder / "run"), os.ttyname(device)))
        self.guards = _Guards()
        self._clients: dict[str, Any] = {}
        """By service; to find a service takes longer than to call it."""

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Run the fleet with busy cores."""
        with self.processes:
            missing = wait_until_active(self.processes, self.fleet.names)
            if missing:
                raise TestudoError(f"bench estop: {', '.join(missing)} did not start")
            os.environ |= {key: value for key, value in self.processes.environment().items() if key.startswith("FAST")}
            words = [sys.executable, "-c", _SPIN.format(nice=_NICENESS)]
            spinners = [subprocess.Popen(words, start_new_session=True) for _ in os.sched_getaffinity(0)]
            try:
                with StatusListener(self.guards, self.processes.domain_id, local=True) as self.listener:
                    self._level = self.listener.node.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])
                    set_realtime_priority(PRIORITIES["observer"], alone=True)
                    self.listener.listen(_WARM_UP_S)
                    yield
            finally:
                for spinner in spinners:
                    spinner.kill()

    def stop_once(self, how: str) -> dict[str, Any]:
        """Stop the fleet by a button or a command; return the time to the last confirmation, and the exit status."""
        self._make_drive()
        self.guards.stopped_s.clear()
        begin_s = time.monotonic()
        status = self._press_button() if how == "button" else self._run_command(begin_s)
        complete = len(self.guards.stopped_s) == len(self.fleet.names)
        return {"time_s": max(self.guards.stopped_s.values()) - begin_s if complete else None, "status": status}

    def _wait_until_stopped(self) -> None:
        self.listener.listen(_PATIENCE_S, enough=lambda: len(self.guards.stopped_s) == len(self.fleet.names))

    def _press_button(self) -> int:
        os.write(self._key, _KEY_DOWN)
        self._wait_until_stopped()
        os.write(self._key, _KEY_UP)
        return 0

    def _run_command(self, begin_s: float) -> int | None:
        """Return the exit status of `testudo estop`."""
        words = ["estop", str(self.fleet.file), "--local", "--domain", str(self.processes.domain_id)]
        program = Path(sys.executable).with_name("testudo")
        with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
            self._wait_until_stopped()
            while command.poll() is None and time.monotonic() < begin_s + _PATIENCE_S:
                self.listener.listen(_STEP_S)
            command.kill()
        return command.returncode

    def _make_drive(self) -> None:
        """Release the stop, rearm and start all robots.

        Raises:
            _NotDrivingError: they do not drive.
        """
        names, end_s = self.fleet.names, time.monotonic() + 3 * _PATIENCE_S
        self.guards.passed_s.clear()
        while not self.guards.have_driven(names):
            if time.monotonic() > end_s:
                raise _NotDrivingError(
                    f"modes {self.guards.modes}, policies {self.guards.sentences}, guards {self.guards.codes}"
                )
            with StopClients(self.processes.domain_id, RELEASE, local=True) as residents:
                residents.listen(_STEP_S, enough=lambda residents=residents: residents.complete)
            self._level.publish(Bool(data=False))
            for name in names:
                is_stopped = self.guards.codes.get(name, ("", 0.0))[0] in STOP_CODES
                request = _NEXT_REQUEST.get("stopped" if is_stopped else self.guards.modes.get(name, ""))
                if request is not None and request[1] is ChangeState and not is_stopped:
                    # its policy may remember the stop of a guard that it has lost since
                    self._call(f"/{name}/guard/rearm", Trigger, Trigger.Request())
                if request is not None:
                    self._call(f"/{name}/{request[0]}", request[1], request[2]())
            self.listener.listen(_DRIVING_S)
        self.listener.listen(_DRIVING_S)

    def _call(self, service: str, kind: Any, request: Any) -> None:
        client = self._clients.get(service)
        if client is None:
            client = self._clients[service] = self.listener.node.create_client(kind, service)
        end_s = time.monotonic() + 1.0
        while not client.service_is_ready() and time.monotonic() < end_s:
            self.listener.listen(_STEP_S)
        future = client.call_async(request)
        self.listener.listen(1.0, enough=future.done)


def _idle_s() -> float:
    """Return the time [s] that all cores together were idle."""
    words = Path("/proc/stat").read_text(encoding="ascii").split()
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")


def _say(values: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _series(command: str, repeats: int) -> dict[str, Any]:
    """Return the stops of one case, the share of the cores that was idle, and how often the fleet was started anew.

    Raises:
        TestudoError: the robots often do not drive again.
    """
    stops: list[dict[str, Any]] = []
    idle_s = taken_s = 0.0
    for restarts in range(_MOST_RESTARTS + 1):
        with tempfile.TemporaryDirectory() as name, (fleet := _Fleet(Path(name))).driving():
            if command == "cold":
                fleet.processes.signal("emergency_stop", signal.SIGKILL)
            begin_s, begin_idle_s = time.monotonic(), _idle_s()
            try:
                while len(stops) < repeats:
                    stops.append(fleet.stop_once(command))
                    _say({"said": f"{command}, {len(stops)} of {repeats}: {stops[-1]}"})
            except _NotDrivingError as error:
                _say({"said": f"{command}: the fleet is started anew: {error}"})
            idle_s += _idle_s() - begin_idle_s
            taken_s += time.monotonic() - begin_s
        if len(stops) == repeats:
            cores = len(os.sched_getaffinity(0))
            return {"stops": stops, "idle_share": idle_s / taken_s / cores, "restarts": restarts}
    raise TestudoError(f"bench estop: the robots did not drive again {_MOST_RESTARTS + 1} times")


def main() -> None:
    """Run all cases in this process, and print the findings as JSON."""
    repeats = int(sys.argv[1])
    _say({"found": {command: _series(command, repeats) for command in BARS}})


if __name__ == "__main__":
    main()
