"""Control comes before the rest on a busy machine: the guard before the policy, the recorder last."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(120),
]


if find_spec("rclpy") is not None:
    from testudo_nodes.common.process_priority import FAVOURED, PRIORITIES, reset_scheduling, set_realtime_priority


def may_schedule():
    """Whether this user may ask for real-time scheduling."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, *before)
    return True


def threads(process_id):
    """Return policy and priority of every thread of a process."""
    numbers = [int(thread.name) for thread in Path(f"/proc/{process_id}/task").iterdir()]
    return {(os.sched_getscheduler(one), os.sched_getparam(one).sched_priority) for one in numbers}


def run_until_started(processes):
    while (event := processes.next_event(40.0)) is not None and event.kind != "started":
        pass
    assert event is not None, "the fleet did not start"


@pytest.mark.skipif(not may_schedule(), reason="this user may not ask for real-time scheduling")
def test_world_guard_and_policy_come_first_and_the_recorder_last(tmp_path):
    processes = FleetProcesses(plan(make_tiny_fleet(tmp_path, 1), run_folder=tmp_path / "run"))
    with processes:
        run_until_started(processes)
        labels = ("emergency_stop", "plant", "r0/guard", "r0/policy", "recorder")
        found = {label: threads(processes.process_id(label)) for label in labels}
        recorder = processes.process_id("recorder")
        niceness = os.getpriority(os.PRIO_PROCESS, recorder)
        session = Path(f"/proc/{recorder}/autogroup")
        share = session.read_text().split()[-1] if session.exists() else str(niceness)
    assert found == {
        "emergency_stop": {(os.SCHED_RR, 6)},
        "plant": {(os.SCHED_RR, 5)},
        "r0/guard": {(os.SCHED_RR, 4)},
        "r0/policy": {(os.SCHED_RR, 2)},
        "recorder": {(os.SCHED_OTHER, 0)},
    }
    assert niceness > os.getpriority(os.PRIO_PROCESS, 0)
    assert int(share) > 0  # its session's, too: else niceness does not count against other sessions


@pytest.mark.skipif(not may_schedule(), reason="this user may not ask for real-time scheduling")
def test_who_measures_goes_first_alone_and_then_as_usual_again():
    mine = f"{os.getpid()}"
    set_realtime_priority(PRIORITIES["observer"], alone=True)
    try:
        found = threads(mine)
        with subprocess.Popen(["sleep", "1"]) as child:
            of_child = threads(child.pid)
            child.kill()
    finally:
        reset_scheduling()
    assert found == {(os.SCHED_RR | os.SCHED_RESET_ON_FORK, max(PRIORITIES.values()))}
    assert of_child == threads(mine) == {(os.SCHED_OTHER, 0)}


def test_who_waits_for_all_others_takes_no_processor_from_them(tmp_path):
    processes = FleetProcesses(plan(make_tiny_fleet(tmp_path, 1), run_folder=None, lock_step=True))
    with processes:
        run_until_started(processes)
        found = [threads(processes.process_id(label)) for label in ("plant", "r0/guard", "r0/policy")]
    assert found == [{(os.SCHED_OTHER, 0)}] * 3


@pytest.mark.skipif(not may_schedule(), reason="this user may not ask for real-time scheduling")
def test_a_favoured_process_has_a_larger_share_inside_of_its_session_and_among_sessions():
    code = """
import os
from testudo_nodes.common.process_priority import FAVOURED, change_niceness
change_niceness(FAVOURED)
group = "/proc/self/autogroup"
print(os.getpriority(os.PRIO_PROCESS, 0), open(group).read().split()[-1] if os.path.exists(group) else FAVOURED)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, start_new_session=True
    )
    process, session = map(int, found.stdout.split())
    assert process == os.getpriority(os.PRIO_PROCESS, 0) + FAVOURED
    assert session == FAVOURED
