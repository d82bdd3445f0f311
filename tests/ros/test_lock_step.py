"""Lock-step over real DDS: two runs with one seed are equal to the last byte, however the machine is loaded."""

import signal
import threading
import time
from importlib.util import find_spec

import pytest
import yaml
from rosbags.highlevel import AnyReader
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.two_teams import tables

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.launch.launch_plan import plan

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]


def recorded(run):
    """Return by topic the bytes of its messages, stamps included, in order."""
    found = {}
    with AnyReader([run]) as reader:
        for connection, _, data in reader.messages():
            found.setdefault(connection.topic, []).append(bytes(data))
    return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2, start_x=-0.2, goal_x=0.2)


@pytest.fixture(scope="module")
def first(fleet, tmp_path_factory):
    run = tmp_path_factory.mktemp("first") / "run"
    state = run_fleet(fleet, run_folder=run, seed=3, duration_s=20.0, lock_step=True)
    return state, recorded(run)


def interrupt(processes, labels):
    """Let processes sleep for moments in the middle of a run."""
    for label in labels:
        time.sleep(0.3)
        processes.signal(label, signal.SIGSTOP)
        time.sleep(0.2)
        processes.signal(label, signal.SIGCONT)


def listen(processes, patience_s=60.0):
    """Return the events until the end of a run; error lines come through another pipe, which may be later."""
    events, end_s = [], time.monotonic() + patience_s
    while not any(event.kind == "finished" for event in events) and time.monotonic() < end_s:
        event = processes.next_event(0.1)
        events += [] if event is None else [event]
    while (event := processes.next_event(0.5)) is not None:
        events.append(event)
    return events


def test_a_run_in_lock_step_arrives_and_no_tick_is_late(first):
    state, messages = first
    assert state.success, state.lines
    assert set(state.late_ticks.values()) == {0}
    assert {"/r0/odom", "/r1/cmd_vel", "/r0/peer_state", "/r1/tick", "/plant/events"} <= set(messages)


def test_the_same_seed_gives_the_same_bytes_though_processes_sleep(fleet, first, tmp_path):
    """Robots that freeze for moments of real time, and a recorder that does, change nothing on simulated time."""
    processes = FleetProcesses(plan(fleet, run_folder=tmp_path / "run", seed=3, duration_s=20.0, lock_step=True))
    with processes:
        while (event := processes.next_event(30.0)) is not None and event.kind != "started":
            pass
        sleepers = ("r0/policy", "r1/guard", "recorder")
        disturber = threading.Thread(target=interrupt, args=(processes, sleepers))
        disturber.start()
        listen(processes)
        disturber.join()
    _, expected = first
    found = recorded(tmp_path / "run")
    assert set(found) == set(expected)
    for topic, messages in expected.items():
        assert found[topic] == messages, topic


@pytest.mark.slow
def test_another_seed_gives_another_run(fleet, first, tmp_path):
    run_fleet(fleet, run_folder=tmp_path / "run", seed=4, duration_s=20.0, lock_step=True)
    assert recorded(tmp_path / "run")["/r0/odom"] != first[1]["/r0/odom"]


@pytest.mark.slow
@pytest.mark.parametrize(("label", "outcome"), [("recorder", "arrived"), ("r0/policy", "stalled")])
def test_the_end_of_a_needed_process_ends_the_run(fleet, tmp_path, label, outcome):
    processes = FleetProcesses(plan(fleet, run_folder=tmp_path / "run", seed=3, duration_s=20.0, lock_step=True))
    with processes:
        while (event := processes.next_event(30.0)) is not None and event.kind != "started":
            pass
        processes.signal(label, signal.SIGKILL)
        told = listen(processes)
    ends = [event.values["outcome"] for event in told if event.kind == "finished"]
    assert ends == [outcome]
    if outcome == "stalled":
        lines = [event.values["text"] for event in told if event.kind == "error_line"]
        assert any("r0/policy did not answer for 20 s" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_robots_of_several_control_periods_meet_in_rounds(tmp_path):
    """Ground robots of 33 ms and drones of 20 ms that follow them: no tick is late, two runs give the same bytes."""
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(tables(tmp_path), sort_keys=False), encoding="utf-8")
    fleet = load_fleet(tmp_path / "fleet.yaml")
    runs = tmp_path / "first", tmp_path / "second"
    for run in runs:
        state = run_fleet(fleet, run_folder=run, seed=5, duration_s=5.0, lock_step=True)
        assert set(state.late_ticks.values()) == {0}, state.lines
    found, expected = map(recorded, runs)
    assert found == expected
    ticks = {name: len(found[f"/{name}/tick"]) for name in ("g0", "d0")}
    assert ticks["d0"] / ticks["g0"] == pytest.approx(0.033 / 0.020, rel=0.05)
