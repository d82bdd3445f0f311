"""`fleet.launch.py` turns the plan into nodes: with stand-ins for `launch`, and the real one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.plan import plan
from testudo_hardware.errors import TestudoError

FILE = Path(__file__).parents[2] / "ros_ws/src/testudo_bringup/launch/fleet.launch.py"
EXPECTED = {
    "fleet",
    "policy",
    "backend",
    "run_folder",
    "seed",
    "duration",
    "log_level",
    "use_sim_time",
}


class Argument(SimpleNamespace):
    def __init__(self, name, **facts):
        super().__init__(name=name, **facts)


class Configuration:
    def __init__(self, name):
        self.name = name

    def perform(self, context):
        return context[self.name]


def load_file():
    spec = importlib.util.spec_from_file_location("fleet_launch", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def launch_file(monkeypatch):
    """Return the launch file, read with stand-ins for what it imports from ROS."""
    names = {
        "launch": {"LaunchContext": dict, "LaunchDescription": list},
        "launch.actions": {"DeclareLaunchArgument": Argument, "OpaqueFunction": SimpleNamespace},
        "launch.substitutions": {"LaunchConfiguration": Configuration},
        "launch_ros": {},
        "launch_ros.actions": {"Node": SimpleNamespace},
    }
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return load_file()


def context(launch_file, **given):
    """Return the value of every argument, defaults where nothing is given."""
    defaults = {item.name: getattr(item, "default_value", "") for item in launch_file.ARGUMENTS}
    return defaults | {name: str(value) for name, value in given.items()}


def test_every_argument_has_a_description_and_only_the_fleet_must_be_given(launch_file):
    assert {item.name for item in launch_file.ARGUMENTS} == EXPECTED
    assert all(item.description.endswith(".") for item in launch_file.ARGUMENTS)
    missing = [item.name for item in launch_file.ARGUMENTS if not hasattr(item, "default_value")]
    assert missing == ["fleet"]
    *arguments, last = launch_file.generate_launch_description()
    assert arguments == list(launch_file.ARGUMENTS)
    assert last.function is launch_file.fleet_nodes


@pytest.mark.parametrize("backend", ["sim", "hw"])
@pytest.mark.parametrize("recorded", [True, False])
def test_the_nodes_are_those_of_the_plan(launch_file, tmp_path, backend, recorded):
    fleet = make_tiny_fleet(tmp_path, 3)
    run_folder = tmp_path / "run" if recorded else None
    given = {"fleet": fleet.file, "backend": backend, "seed": 5, "duration": 20}
    nodes = launch_file.fleet_nodes(context(launch_file, **given, run_folder=run_folder or ""))
    processes = plan(
        fleet, run_folder=run_folder, backend=backend, seed=5, duration_s=20.0, log_level="info"
    )
    assert len(nodes) == len(processes)
    for node, process in zip(nodes, processes, strict=True):
        assert (node.package, node.executable) == (process.package, process.executable)
        assert (node.name, node.namespace) == (process.name, process.namespace)
        assert node.parameters == [dict(process.parameters), {"use_sim_time": False}]
        assert node.ros_arguments == list(process.arguments)


def test_another_policy_may_be_given_and_a_wrong_fleet_is_refused(launch_file, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    nodes = launch_file.fleet_nodes(context(launch_file, fleet=fleet.file, policy="other.onnx"))
    assert {node.parameters[0]["policy"] for node in nodes} == {str(Path("other.onnx").absolute())}
    with pytest.raises(TestudoError, match="no such fleet file"):
        launch_file.fleet_nodes(context(launch_file, fleet=tmp_path / "none.yaml"))


def test_the_real_launch_makes_the_nodes_of_the_plan(tmp_path):
    launch = pytest.importorskip("launch", reason="`launch` is not installed: it comes with ROS 2")
    pytest.importorskip("launch_ros", reason="`launch_ros` is not installed: it comes with ROS 2")
    fleet = make_tiny_fleet(tmp_path, 2)
    module = load_file()
    real = launch.LaunchContext()
    real.launch_configurations.update(fleet=str(fleet.file))
    *arguments, last = module.generate_launch_description().entities
    for argument in arguments:
        argument.visit(real)
    nodes = last.visit(real)
    processes = plan(fleet, run_folder=None, log_level="info")
    assert [node.node_executable for node in nodes] == [item.executable for item in processes]
    assert [node.node_package for node in nodes] == [item.package for item in processes]
