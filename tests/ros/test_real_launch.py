"""`ros2 launch` on the built workspace: the processes of the plan come up, drive, and go at Ctrl-C.

The launch files are run by the real `launch`, in a process of its own, as the command does it.
"""

import importlib.util

import pytest
from tests.bringup.launched import NEEDS, Launched, running
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def planned(fleet, **part):
    """Return the same of the plan."""
    return {(item.executable, f"/{item.namespace}", item.name) for item in plan(fleet, run_folder=None, **part)}


@pytest.fixture
def launched(install, tmp_path):
    """Return a starter of launch files that leaves nothing behind."""
    begun = []
    domain_id = FleetProcesses(()).domain_id

    def start(file, **given):
        begun.append(Launched(install, tmp_path, domain_id, file, **given))
        return begun[-1]

    yield start
    for item in begun:
        item.kill()


@pytest.mark.parametrize("whole", [True, False], ids=["one file for all", "one file for each computer"])
def test_the_fleet_comes_up_drives_and_goes_at_ctrl_c(launched, tmp_path, whole):
    fleet = make_tiny_fleet(tmp_path, 2, start_x=0.0, goal_x=50.0, walls=False)
    unrecorded = {"run_folder": "none"}
    parts = (
        [("fleet", unrecorded, {})]
        if whole
        else [
            ("station", unrecorded, {"station": True}),
            *(("robot", {"robot": name}, {"robot": name}) for name in fleet.names),
        ]
    )
    begun = [(launched(file, fleet=fleet.file, **given), part) for file, given, part in parts]
    for item, part in reversed(begun):
        item.wait_for(*(f"[{name}.policy]: active: active" for name in fleet.names if part in ({}, {"robot": name})))
    for item, part in begun:
        assert running(item.process.pid) == planned(fleet, **part)
    for item, _ in reversed(begun):
        item.stop()
    for item, _ in begun:
        assert item.wait() == (0, True), item.said()
        assert "has died" not in item.said()


def test_a_policy_that_is_not_there_ends_the_launch_with_an_error(launched, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    item = launched("fleet", fleet=fleet.file, policy=tmp_path / "none.onnx", run_folder="none")
    status, gone = item.wait()
    assert (status, gone) == (1, True), item.said()
    assert "none.onnx: no such file" in item.said()
    assert "refused to start; its own line above gives the reason" in item.said()


def test_an_argument_that_is_misspelt_ends_the_launch_before_anything_starts(launched, tmp_path):
    item = launched("fleet", fleet=make_tiny_fleet(tmp_path, 1).file, run_folder="none", strat="false")
    assert item.wait() == (1, True), item.said()
    assert "strat: unknown argument; fleet.launch.py takes fleet, policy" in item.said()
    assert "process started" not in item.said()
