"""`testudo bench` with and without the distribution testudo-bench."""

from importlib.metadata import EntryPoint

import pytest

from testudo_deploy.commands import bench as verb
from testudo_hardware.errors import TestudoError

INSTALL = "the distribution testudo-bench, which is not installed; to install it, run pip install ./tests/bench"


@pytest.fixture
def only_robot(monkeypatch):
    """Only the benchmark of testudo_deploy is installed."""
    own = EntryPoint("robot", "testudo_deploy.commands.tick_timing:bench_robot [robot]", verb.GROUP)
    monkeypatch.setattr(verb, "entry_points", lambda group: [own])


@pytest.mark.usefixtures("only_robot")
def test_without_the_other_benchmarks_robot_is_offered_and_their_installation_explained(capsys):
    verb.bench("list")
    shown = capsys.readouterr().out
    assert "Time control ticks in which the policy runs" in shown
    assert INSTALL in shown
    with pytest.raises(TestudoError, match=f"'shield' is not known; known are robot; all others .* {INSTALL[4:]}"):
        verb.bench("shield")
    with pytest.raises(TestudoError, match="testudo bench robot: --policy is missing"):
        verb.bench("robot")


@pytest.mark.usefixtures("only_robot")
def test_help_lists_each_registered_benchmark_with_its_summary():
    text = verb._with_benchmarks("Run.\n\n    Args:\n        name: one.")
    rows = text.partition("Benchmarks:\n")[2].partition("Args:")[0].splitlines()
    assert rows[0].split()[:3] == ["robot", "Time", "control"]
    assert INSTALL in text


def test_a_benchmark_whose_extra_is_not_installed_says_so(monkeypatch):
    monkeypatch.setattr(verb, "missing_requirements", lambda point: ["ros-rclpy"] if "ros" in point.extras else [])
    monkeypatch.setattr(
        verb, "entry_points", lambda group: [EntryPoint("faults", "no_such_module:bench_faults [ros,train]", group)]
    )
    with pytest.raises(TestudoError, match=r"faults: needs ros-rclpy, .* run pip install 'testudo\[ros,train\]'"):
        verb.bench("faults")
