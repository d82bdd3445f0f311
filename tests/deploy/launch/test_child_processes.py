import json
import os
import signal
import socket
import time

import pytest

from testudo_deploy.launch.child_processes import FleetProcesses, ProcessEvent, free_domain_id
from testudo_deploy.launch.fleet_run import FleetRunState
from testudo_deploy.launch.launch_plan import ProcessPlan

CHATTY = """
import json, os, signal, sys, time
name = [word for word in sys.argv if word.startswith("__node:=")][0][8:]
def end(*_):
    print(json.dumps({"event": "last word", "name": name}), flush=True)
    sys.exit(3)
signal.signal(signal.SIGINT, end)
print("not JSON")
print(json.dumps({"no": "event"}))
print(json.dumps({"event": "here", "name": name, "domain": os.environ["ROS_DOMAIN_ID"]}))
sys.stdout.flush()
print("a complaint", file=sys.stderr, flush=True)
time.sleep(60)
"""
STUBBORN = CHATTY.replace("signal.SIGINT, end", "signal.SIGINT, signal.SIG_IGN")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "chatty.py").write_text(CHATTY)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)


def process(name, namespace="", module="chatty"):
    return ProcessPlan(name, "p", "e", module, namespace)


def events_until(processes, kind, count):
    found = []
    end_s = time.monotonic() + 20
    while sum(event.kind == kind for event in found) < count and time.monotonic() < end_s:
        event = processes.next_event(0.5)
        if event is not None:
            found.append(event)
    return found


def rest(processes):
    found = []
    while (event := processes.next_event(0.2)) is not None:
        found.append(event)
    return found


def test_processes_are_heard_and_end_robots_first(modules):
    planned = [process("recorder"), process("plant"), process("policy", "r0")]
    with FleetProcesses(planned, domain_id=17) as processes:
        early = events_until(processes, "here", 3)
    said = {event.process: event.values for event in early if event.kind == "here"}
    assert said == {
        "recorder": {"name": "recorder", "domain": "17"},
        "plant": {"name": "plant", "domain": "17"},
        "r0/policy": {"name": "policy", "domain": "17"},
    }
    late = rest(processes)
    assert [event.process for event in late if event.kind == "last word"] == [
        "r0/policy",
        "plant",
        "recorder",
    ]
    complaints = [event for event in (*early, *late) if event.kind == "error_line"]
    assert {event.values["text"] for event in complaints} == {"a complaint"}
    assert sum(event.kind == "ended" for event in late) == 3
    assert processes.exit_status("plant") == 3


def test_a_process_that_does_not_obey_is_killed(modules, monkeypatch):
    monkeypatch.setattr("testudo_deploy.launch.child_processes._STOP_S", 0.3)
    with FleetProcesses([process("plant", module="stubborn")]) as processes:
        events_until(processes, "here", 1)
    assert processes.exit_status("plant") == -signal.SIGKILL


def test_an_error_in_the_block_leaves_no_process(modules):
    processes = FleetProcesses([process("plant")])

    def fail():
        with processes:
            events_until(processes, "here", 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert processes.exit_status("plant") is not None


def test_a_free_domain_is_not_one_that_is_in_use(monkeypatch):
    monkeypatch.setattr("testudo_deploy.launch.child_processes._FREE_DOMAINS", range(97, 99))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(("", 7400 + 250 * 97))
        except OSError:
            pytest.skip("somebody else uses domain 97")
        assert free_domain_id() == 98


def told(state, process, kind, **values):
    state.take(ProcessEvent(process, kind, values))


def summary(**changes):
    values = {"time_s": 3.0, "contacts": 0, "distance_m": {"r0": 1.0}}
    return values | {"separation_m": 0.4, "closest": ["r0", "r1"]} | changes


def test_the_state_of_a_run_follows_what_the_processes_tell():
    state = FleetRunState(("r0", "r1"))
    told(state, "r0/policy", "brake", robot="r0", reason="no_pose")
    assert state.braked == {"r0": "no_pose"}
    told(state, "r0/policy", "brake", robot="r0", reason="")
    assert state.braked == {}
    told(state, "plant", "started")
    told(state, "plant", "state", **summary())
    assert (state.started, state.time_s, state.separation_m) == (True, 3.0, 0.4)
    assert not state.success
    told(state, "plant", "finished", outcome="arrived", **summary(time_s=5.0))
    assert state.success
    told(state, "plant", "state", **summary(time_s=6.0, contacts=2))
    assert (state.time_s, state.contacts) == (5.0, 0), "the result stands"
    counts = {"ticks": 100, "late_ticks": 2, "missed_ticks": 1, "cpu_share": 0.1}
    told(state, "r0/policy", "summary", robot="r0", **counts)
    assert (state.ticks["r0"], state.late_ticks["r0"]) == (100, 3)
    assert state.cpu_share == {"r0/policy": 0.1}
    told(state, "task", "task_figures", figures={"return": 2.5, "tags": 3.0})
    assert state.figures == {"return": 2.5, "tags": 3.0}
    told(state, "recorder", "recorded", messages=7)
    assert state.recorded_messages == 7


def test_a_contact_is_no_success():
    state = FleetRunState(("r0",))
    told(state, "plant", "finished", outcome="arrived", **summary(contacts=1))
    assert not state.success


def test_the_result_is_json():
    from testudo_deploy.commands.up import result_values

    state = FleetRunState(("r0",))
    told(state, "plant", "finished", outcome="timeout", **summary(separation_m=None, closest=[]))
    told(state, "task", "task_figures", figures={"return": 2.5, "tags": 3.0})
    values = json.loads(json.dumps(result_values(state), allow_nan=False))
    assert values["success"] is False
    assert values["minimum_separation_m"] is None
    assert values["task"] == {"return": 2.5, "tags": 3.0}
