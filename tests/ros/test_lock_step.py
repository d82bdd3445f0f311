"""Lock-step over real DDS: a run of `testudo up` is recorded whole, and a second one is the same to the last byte."""

import json
import signal
import threading
import time
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from rosbags.highlevel import AnyReader
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.two_teams import tables
from tests.ros.recorded_bag import decode_all

from testudo_deploy.cli import main
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import FleetRunError, run_fleet
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.launch_plan import plan
from testudo_hardware.links.wire import read_command
from testudo_runs.run_reader import read_run

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
def ran(tmp_path_factory):
    """Return what `testudo up` did with two robots and a short way: exit status, what it printed, state and JSON."""
    folder, states, shown = tmp_path_factory.mktemp("driven"), [], StringIO()
    make_tiny_fleet(folder, 2, start_x=0.0, goal_x=0.5)
    words = ["up", "--fleet", folder / "fleet.yaml", "--run", folder / "run", "--seed", "1", "--lock-step"]

    def spied(*given, **options):
        states.append(run_fleet(*given, **options))
        return states[-1]

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(shown):
        patch.setattr("testudo_deploy.commands.up.run_fleet", spied)
        status = main([str(word) for word in (*words, "--json", folder / "up.json")])
    values = json.loads((folder / "up.json").read_text())
    return SimpleNamespace(status=status, shown=shown.getvalue(), state=states[0], values=values)


@pytest.fixture(scope="module")
def driven(ran):
    """Return the state at the end of that run."""
    return ran.state


@pytest.fixture(scope="module")
def fleet(driven):
    """Return the fleet of that run."""
    return load_fleet(driven.run_folder.parent / "fleet.yaml")


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


def test_a_fleet_starts_arrives_and_ends(driven):
    assert driven.success, (driven.outcome, driven.lines)
    assert driven.contacts == 0
    assert driven.lines == []
    assert set(driven.late_ticks.values()) == {0}
    assert 0.4 < driven.separation_m < 0.6
    assert all(distance < 0.1 for distance in driven.distance_m.values())
    assert set(driven.ticks) == {"r0", "r1"}
    robots = {f"{name}/{kind}" for name in ("r0", "r1") for kind in ("guard", "policy")}
    assert {"emergency_stop", "plant", "recorder", "station"} | robots == set(driven.cpu_share)


def policy_commands(folder, robot):
    """Return every command that the policy of a robot sent to its guard, as recorded."""
    with AnyReader([folder]) as reader:
        topics_ = [item for item in reader.connections if item.topic == f"/{robot.name}/cmd_vel_policy"]
        messages = [reader.deserialize(data, item.msgtype) for item, _, data in reader.messages(topics_)]
    return {read_command(message, robot.name, robot.spec).command for message in messages}


def test_the_run_is_recorded_whole(driven):
    run = read_run(driven.run_folder)
    assert run.complete, run.warnings
    with AnyReader([driven.run_folder]) as reader:
        assert reader.message_count == driven.recorded_messages
    for name in run.robots:
        sequences = [tick.sequence for tick in run.ticks[name]]
        assert sequences == list(range(sequences[0], driven.ticks[name]))
        moving = [tick for tick in run.ticks[name] if tick.status != "braked"]
        assert len(moving) > 30
        # what the loop sent is what went over the wire, and what the driver let act
        commands = {tick.sent_command for tick in moving}
        assert commands <= policy_commands(driven.run_folder, run.fleet.robot(name))
        assert commands <= {tuple(command) for command in run.sent[name].command}
        assert np.abs(run.applied[name].command).max() > 0.05
        assert run.truth[name].position_world[-1] == pytest.approx(run.fleet.robot(name).goal_world, abs=0.1)
        samples = run.odometry[name]
        assert 0.01 < np.median(samples.received_s - samples.stamp_s) < 0.15
    assert {"started", "state", "finished"} <= {event.kind for event in run.events}
    assert run.policy_sha256 == PolicyArtefact.load(run.policy_path).sha256
    assert run.info["seed"] == 1


def test_every_message_can_be_read_by_the_definitions_in_the_bag(driven):
    counts, silent = decode_all(driven.run_folder / "run_0.mcap")
    assert sum(counts.values()) == driven.recorded_messages
    fleet = read_run(driven.run_folder).fleet
    assert {*counts} | {(topic, "") for topic in silent} >= {
        (topic.name, "" if topic.name in silent else topic.type) for topic in topics(fleet)
    }
    quiet = [f"/{name}/estop" for name in fleet.names]
    assert silent == {"/task/score", "/estop", *quiet}  # no task node ran, nobody pressed
    assert {kind for _, kind in counts} == {
        "diagnostic_msgs/msg/DiagnosticStatus",
        "geometry_msgs/msg/TwistStamped",
        "nav_msgs/msg/Odometry",
        "std_msgs/msg/String",
        "std_msgs/msg/UInt8MultiArray",
    }


def test_a_robot_brakes_before_it_knows_its_peers(driven):
    run = read_run(driven.run_folder)
    for name in run.robots:
        for tick in run.ticks[name]:
            if tick.status != "braked":
                break
            # peer_unaware: two poses at rest differ by more than the half-width of a segment, within their error bound
            known = ("no_pose", "peer_unheard", "peer_unaware", "stale_pose", "idle", "armed")
            assert tick.reason.partition(":")[0] in known
        else:
            pytest.fail("it never drove")


def test_a_run_folder_that_is_taken_refuses_the_fleet_before_it_starts(driven):
    with pytest.raises(FleetRunError, match="holds a run already"):
        run_fleet(read_run(driven.run_folder).fleet, run_folder=driven.run_folder)


def test_up_prints_the_table_and_writes_json(ran):
    assert ran.status == 0, ran.shown
    assert "arrived" in ran.shown
    assert ran.values["success"] is True
    assert ran.values["contacts"] == 0
    assert ran.values["recorded_messages"] == ran.state.recorded_messages > 0


def test_the_same_seed_gives_the_same_bytes_though_processes_sleep(fleet, driven, tmp_path):
    """Robots that freeze for moments of real time, and a recorder that does, change nothing on simulated time."""
    processes = FleetProcesses(plan(fleet, run_folder=tmp_path / "run", seed=1, duration_s=60.0, lock_step=True))
    with processes:
        while (event := processes.next_event(30.0)) is not None and event.kind != "started":
            pass
        sleepers = ("r0/policy", "r1/guard", "recorder")
        disturber = threading.Thread(target=interrupt, args=(processes, sleepers))
        disturber.start()
        listen(processes)
        disturber.join()
    expected, found = recorded(driven.run_folder), recorded(tmp_path / "run")
    assert set(found) == set(expected)
    for topic, messages in expected.items():
        assert found[topic] == messages, topic


@pytest.mark.slow
def test_another_seed_gives_another_run(fleet, driven, tmp_path):
    run_fleet(fleet, run_folder=tmp_path / "run", seed=4, duration_s=20.0, lock_step=True)
    assert recorded(tmp_path / "run")["/r0/odom"] != recorded(driven.run_folder)["/r0/odom"]


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
