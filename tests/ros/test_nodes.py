"""The nodes as processes over real DDS: refusals, a whole run, its record, a recorder that dies."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.launch_plan import plan, ros_arguments
from testudo_nodes.common.messages import message_definition, type_hash
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),  # one worker, and so one start of the processes
    pytest.mark.timeout(240),
]

NAN_BEYOND_M = 1.1
"""Outside of the test vector, whose positions are within 1 m."""


def run_node(process):
    return subprocess.run(
        [sys.executable, "-m", process.module, *ros_arguments(process)],
        env=FleetProcesses([process]).environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("label", ["r0/policy", pytest.param("plant", marks=pytest.mark.slow), "recorder"])
def test_a_policy_of_another_hash_is_refused_in_one_line(tmp_path, label):
    fleet = make_tiny_fleet(tmp_path, 1)
    process = next(p for p in plan(fleet, run_folder=tmp_path / "run") if p.label == label)
    if label == "recorder":
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "metadata.yaml").write_text("")
    else:
        fleet.file.write_text(fleet.file.read_text().replace(fleet.policy_sha256, "0" * 64))
    result = run_node(process)
    assert result.returncode == 2
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("refused: ")
    assert ("sha256" in lines[0]) or ("holds a run already" in lines[0])


def test_definitions_are_those_that_bags_expect(tmp_path):
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_KILTED)
    for topic in topics(make_tiny_fleet(tmp_path, 1)):
        assert type_hash(topic.type) == store.hash_rihs01(topic.type)
        read = get_types_from_msg(message_definition(topic.type), topic.type)
        names = [line[5:] for line in message_definition(topic.type).splitlines() if line[:5] == "MSG: "]
        assert len(read) == len(names) + 1


def test_a_robot_that_is_not_trusted_is_kept_clear_of_where_tracking_sees_it(tmp_path):
    """r0 knows r1 by its odometry alone and arrives; r1, whom nobody answers, stays braked."""
    fleet = make_tiny_fleet(tmp_path, 2, start_x=0.0, goal_x=0.3)
    text = fleet.file.read_text().replace("  r1:\n", "  r1:\n    untrusted: true\n") + "tracking: true\n"
    fleet.file.write_text(text)
    fleet = load_fleet(fleet.file)
    assert fleet.untrusted == ("r1",)
    state = run_fleet(fleet, run_folder=tmp_path / "run", seed=1, duration_s=8.0)
    assert (state.contacts, state.lines) == (0, [])
    assert state.distance_m["r0"] < 0.1
    run = read_run(tmp_path / "run")
    assert {tick.status for tick in run.ticks["r1"]} == {"braked"}
    last = run.ticks["r0"][-1]
    assert last.neighbour_untrusted == (True,)
    assert last.neighbour_control_point_world[0] == pytest.approx(run.truth["r1"].position_world[-1], abs=0.1)
    assert all(tick.status == "braked" or tick.neighbour_untrusted == (True,) for tick in run.ticks["r0"])


def add_nan(model):
    """Let the command be NaN beyond some x: command + 0 * sqrt(limit - x)."""
    graph = model.graph
    for node in graph.node:
        node.output[:] = ["plain" if name == "command" else name for name in node.output]
    graph.initializer.extend(
        [
            helper.make_tensor("first", TensorProto.INT64, [1], [0]),
            helper.make_tensor("beyond", TensorProto.FLOAT, [], [NAN_BEYOND_M]),
            helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0]),
        ]
    )
    graph.node.extend(
        [
            helper.make_node("Gather", ["control_point_world", "first"], ["x"], axis=1),
            helper.make_node("Sub", ["beyond", "x"], ["room"]),
            helper.make_node("Sqrt", ["room"], ["root"]),
            helper.make_node("Mul", ["root", "nothing"], ["zero_or_nan"]),
            helper.make_node("Add", ["plain", "zero_or_nan"], ["command"]),
        ]
    )
    onnx.checker.check_model(model)


@pytest.mark.slow
def test_a_policy_that_gives_nan_brakes_and_a_dead_recorder_leaves_what_it_wrote(make_bench, tmp_path):
    bench = make_bench(edit_model=add_nan, run_folder=tmp_path / "run")
    bench.observer.wait_until_driving()
    before = recorded_bytes(tmp_path)  # a slow machine may not have written any tick yet
    bench.observer.wait(lambda: recorded_bytes(tmp_path) > before + 10_000, "nothing was recorded")
    bench.processes.signal("recorder", signal.SIGKILL)
    killed_s = time.monotonic()
    bench.observer.wait(lambda: bench.processes.exit_status("recorder") is not None, "it lives")
    bench.observer.wait_until_driving()  # control did not feel it
    run = read_run(tmp_path / "run")
    assert not run.complete
    assert run.warnings
    last_s = run.ticks["r0"][-1].stamp_s
    assert killed_s - last_s < 2.0
    assert any(tick.status != "braked" for tick in run.ticks["r0"])

    bench.observer.wait(lambda: bench.observer.heard.truth[-1][1].position_world[0] > NAN_BEYOND_M - 0.1, "no way")
    bench.observer.wait_until_at_rest(time.monotonic())
    decision_way_m = 0.33 * 0.24  # the policy runs at every tenth tick; up to 20 % too fast
    assert bench.observer.heard.truth[-1][1].position_world[0] < NAN_BEYOND_M + decision_way_m
    assert all(np.isfinite(reading.command).all() for _, reading in bench.observer.heard.sent)
    assert bench.processes.exit_status("r0/policy") is None


def recorded_bytes(folder):
    bag = folder / "run" / "run_0.mcap"
    return bag.stat().st_size if bag.exists() else 0


def test_a_full_disk_ends_the_recording_with_one_line_and_nothing_else(make_bench, tmp_path):
    bench = make_bench(run_folder=tmp_path / "run")
    bench.observer.wait(lambda: recorded_bytes(tmp_path) > 10_000, "nothing was recorded")
    limit = recorded_bytes(tmp_path) + 10_000
    resource.prlimit(bench.processes.process_id("recorder"), resource.RLIMIT_FSIZE, (limit, limit))
    bench.observer.wait(lambda: bench.processes.exit_status("recorder") is not None, "the recorder lives on")
    assert bench.processes.exit_status("recorder") == 1
    bench.observer.wait_until_driving()
    lines = []
    while (event := bench.processes.next_event(0.1)) is not None and event.kind != "ended":
        if event.process == "recorder" and event.kind == "error_line":
            lines.append(event.values["text"])
    assert len(lines) == 1
    assert "File too large; recording ends" in lines[0]
    assert read_run(tmp_path / "run").ticks["r0"]


def test_ctrl_c_leaves_a_readable_run_and_no_process(tmp_path):
    make_tiny_fleet(tmp_path, 1, start_x=0.0, goal_x=50.0, walls=False)
    words = ["up", "--fleet", str(tmp_path / "fleet.yaml"), "--run", str(tmp_path / "run")]
    # a marker in the environment finds the children again
    marker = f"TESTUDO_TEST_MARK={tmp_path}"
    child = subprocess.Popen(
        [sys.executable, "-m", "testudo_deploy.cli", *words],
        env=os.environ | dict([marker.split("=", 1)]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    bag = tmp_path / "run" / "run_0.mcap"
    end_s = time.monotonic() + 40
    while (not bag.exists() or bag.stat().st_size < 20_000) and time.monotonic() < end_s:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, out + err
    assert "interrupted" in out
    assert read_run(tmp_path / "run").complete
    assert processes_with(marker) == []


def processes_with(marker):
    """Return the ids of processes that have a marker in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            if marker.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found
