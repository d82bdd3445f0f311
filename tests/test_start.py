"""What a verb or a node must not load when it starts: packages that take seconds and that it does not use.

Each case is a process of its own, which says what it has loaded. Times are not asserted.
"""

import pytest
from tests.deploy.run_messages import record
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.test_layout import TRAINING_SIDE, run_python

SLOW = "jax", "scipy", "mujoco", "flax", "brax", "matplotlib", "pandas", "onnx", "PIL"
"""Packages for training, fits and pictures."""
REPORT = "import sys; print('LOADED', sorted(name for name in names if name in sys.modules))"


def loaded(code, more=(), *words):
    """Return which of the slow packages, and of ``more``, a process has loaded behind some code."""
    result = run_python(f"{code}\nnames = {(*SLOW, *more)!r}\n{REPORT}", *words)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1].partition("LOADED ")[2]


STATION = "station.status", "station.lost", "station.page", "station.doctor"
NODES = "robot.driver_node", "robot.policy_node", "robot.guard_node", "station.recorder_node", "station.markers_node"
NODES += "station.station_node", "station.emergency_stop_node"  # all but those of plant and task


@pytest.mark.parametrize(
    ("modules", "more"),
    [
        # the operator's verbs say or ask one thing
        (("station.arm", "station.estop"), ("numpy", "yaml", "msgspec", "onnxruntime", "rclpy")),
        (STATION, ("rosbags", "rclpy")),
        pytest.param(NODES, (*TRAINING_SIDE, "typeguard", "rosbags", "rich", "tyro"), marks=pytest.mark.ros),
    ],
    ids=["operator", "station", "nodes"],
)
def test_stations_and_robots_load_nothing_of_training_and_analysis(modules, more):
    assert loaded("\n".join(f"import testudo_nodes.{name}" for name in modules), more) == "[]"


def test_import_of_recordings_takes_no_statistics_package():
    code = "import testudo_analysis.commands.import_run, sys; assert 'scipy.stats' not in sys.modules"
    assert loaded(code) in ("[]", "['scipy']")  # Student's quantiles are in scipy.special, which is quick


def test_the_whole_replay_of_a_run_needs_neither_jax_nor_scipy(tmp_path):
    """All modes but counterfactuals, and the text of the terminal: the run's way through it, not only its imports."""
    run = record(tmp_path / "run", make_tiny_fleet(tmp_path, 2, "gritsbot_x"), 20)
    code = (
        "import sys; from testudo_deploy.cli import main\n"
        "print(main(['replay', *sys.argv[1:]]) in (0, 1))\n"  # the made-up ticks do not follow from their inputs
        "import json, pathlib; assert json.loads(pathlib.Path(sys.argv[-1]).read_text())['open_loop']['rows']"
    )
    assert loaded(code, (), run, "--json", tmp_path / "replay.json") == "[]"


@pytest.mark.slow
def test_physics_without_mjx_do_not_load_it():
    code = "import testudo_sim.physics_choice, sys; assert 'mujoco.mjx' not in sys.modules"
    assert "jax" in loaded(code)  # the control: what is loaded is seen
