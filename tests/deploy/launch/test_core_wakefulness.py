"""The cores of a virtual machine are kept awake, by processes that yield to all others and do not outlive us."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testudo_deploy.launch import child_processes
from testudo_deploy.launch.child_processes import CpuKeepAwake, cores_wake_late

VIRTUAL, METAL = "flags\t: fpu hypervisor sse\n", "flags\t: fpu sse\n"
linux = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no SCHED_IDLE")


@linux
@pytest.mark.parametrize(
    ("info", "quota", "expected"),
    [
        (VIRTUAL, None, True),
        (VIRTUAL, "max 100000\n", True),
        (VIRTUAL, "200000 100000\n", False),
        (METAL, None, False),
    ],
)
def test_it_is_done_in_virtual_machines_without_a_quota(tmp_path, info, quota, expected):
    cpu_info, cpu_quota = tmp_path / "cpuinfo", tmp_path / "cpu.max"
    cpu_info.write_text(info)
    if quota is not None:
        cpu_quota.write_text(quota)
    assert cores_wake_late(cpu_info, cpu_quota) == expected


def test_another_system_is_left_alone(tmp_path):
    assert not cores_wake_late(tmp_path / "no_such_file")


@linux
def test_the_spinners_yield_and_end(monkeypatch):
    monkeypatch.setattr(child_processes, "cores_wake_late", lambda: True)
    with CpuKeepAwake() as awake:
        spinners = list(awake._spinners)
        assert len(spinners) == len(os.sched_getaffinity(0))
        wait(lambda: all(os.sched_getscheduler(spinner.pid) == os.SCHED_IDLE for spinner in spinners))
        if Path("/proc/self/autogroup").exists():  # else each takes half of a core from every process without rights
            wait(lambda: all(autogroup(spinner.pid).endswith("nice 19") for spinner in spinners))
        wait(lambda: [os.sched_getaffinity(s.pid) for s in spinners] == [{c} for c in sorted(os.sched_getaffinity(0))])
    assert all(spinner.returncode is not None for spinner in spinners)


@linux
def test_the_spinners_end_when_their_parent_is_killed():
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import time\n"
                "from testudo_deploy.launch import child_processes\n"
                "child_processes.cores_wake_late = lambda: True\n"
                "with child_processes.CpuKeepAwake() as awake:\n"
                "    print(*(s.pid for s in awake._spinners), flush=True)\n"
                "    time.sleep(60)\n"
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    spinners = [int(word) for word in parent.stdout.readline().split()]
    assert spinners
    parent.kill()
    parent.wait()
    wait(lambda: not any(lives(spinner) for spinner in spinners))


def autogroup(process_id):
    return Path(f"/proc/{process_id}/autogroup").read_text().strip()


def lives(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def wait(condition):
    end_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)
