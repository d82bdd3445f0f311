"""The launch files turn the plan, or a part of it, into nodes: with stand-ins for `launch`, and the real one."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_hardware.errors import TestudoError

PACKAGE = Path(__file__).parents[2] / "ros_ws/src/testudo_bringup"
COMMON = {"fleet", "policy", "backend", "log_level", "use_sim_time", "lock_step", "localhost", "params_file", "respawn"}
PLANT = {"run_folder", "seed", "duration", "watch", "button", "hold_to_run", "start", "until"}
ARGUMENTS = {"fleet": COMMON | PLANT, "station": COMMON | PLANT, "robot": COMMON | {"robot"}}
GIVEN = {"fleet": {"fleet"}, "station": {"fleet"}, "robot": {"fleet", "robot"}}
PARTS = {"fleet": {}, "station": {"station": True}, "robot": {"robot": "r1"}}


class Argument(SimpleNamespace):
    def __init__(self, name, **facts):
        super().__init__(name=name, **facts)


class Configuration:
    def __init__(self, name):
        self.name = name

    def perform(self, context):
        return context[self.name]


class Description(list):
    @property
    def entities(self):
        return self


class Function(SimpleNamespace):
    def visit(self, context):
        return self.function(context, *self.args, **self.kwargs)


def describe(kind):
    """Return what a launch file describes."""
    spec = importlib.util.spec_from_file_location(f"{kind}_launch", PACKAGE / f"launch/{kind}.launch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generate_launch_description().entities


@pytest.fixture
def shared(monkeypatch):
    """Let launch files find what they share, read anew with the `launch` that is there."""
    # not by the path: beside the package lies a folder `launch`
    folder = PACKAGE / "testudo_bringup"
    spec = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    monkeypatch.setitem(sys.modules, folder.name, importlib.util.module_from_spec(spec))
    yield
    sys.modules.pop(f"{folder.name}.launching", None)


@pytest.fixture
def stand_ins(shared, monkeypatch):
    names = {
        "launch": {"LaunchContext": dict, "LaunchDescription": Description},
        "launch.actions": {"DeclareLaunchArgument": Argument, "OpaqueFunction": Function, "Shutdown": SimpleNamespace},
        "launch.substitutions": {"LaunchConfiguration": Configuration},
        "launch_ros": {},
        "launch_ros.actions": {"Node": SimpleNamespace},
    }
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


def nodes_of(kind, **given):
    """Return the nodes of a launch file, with defaults where nothing is given."""
    *arguments, last = describe(kind)
    values = {item.name: getattr(item, "default_value", "") for item in arguments}
    assert set(given) <= set(values)
    return last.visit(values | {name: str(value) for name, value in given.items()})


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_every_argument_has_a_description_and_few_must_be_given(stand_ins, kind):
    *arguments, _ = describe(kind)
    assert {item.name for item in arguments} == ARGUMENTS[kind]
    assert all(item.description.endswith(".") for item in arguments)
    assert {item.name for item in arguments if not hasattr(item, "default_value")} == GIVEN[kind]


@pytest.mark.parametrize("backend", ["sim", "hw"])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_the_nodes_are_those_of_the_plan(stand_ins, tmp_path, kind, backend, recorded):
    fleet = make_tiny_fleet(tmp_path, 3)
    run_folder = tmp_path / "run" if recorded else None
    given = {"fleet": fleet.file, "backend": backend}
    given |= {"robot": "r1"} if kind == "robot" else {"seed": 5, "duration": 20, "run_folder": run_folder or "none"}
    nodes = nodes_of(kind, **given)
    processes = plan(
        fleet, run_folder=run_folder, backend=backend, seed=5, duration_s=20.0, log_level="info", **PARTS[kind]
    )
    assert len(nodes) == len(processes) > 0
    for node, process in zip(nodes, processes, strict=True):
        assert (node.package, node.executable) == (process.package, process.executable)
        assert (node.name, node.namespace) == (process.name, process.namespace)
        starts = {"start": True} if process.name == "station" else {}
        assert node.parameters == [dict(process.parameters), {"use_sim_time": False} | starts]
        assert node.ros_arguments == [*process.arguments, "--enclave", f"/testudo/{process.label}"]


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_lock_step_puts_all_nodes_on_simulated_time(stand_ins, tmp_path, kind):
    given = {"fleet": make_tiny_fleet(tmp_path, 2).file, "lock_step": "true"}
    for node in nodes_of(kind, **given, **({"robot": "r1"} if kind == "robot" else {})):
        assert node.name == "emergency_stop" or node.parameters[0]["lock_step"]  # a stop waits for no stage
        assert node.parameters[1]["use_sim_time"] is True


def test_another_policy_may_be_given_and_a_wrong_fleet_or_robot_is_refused(stand_ins, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    nodes = nodes_of("fleet", fleet=fleet.file, policy="other.onnx")
    assert {node.parameters[0]["policy"] for node in nodes} == {str(Path("other.onnx").absolute())}
    with pytest.raises(TestudoError, match="no such fleet file"):
        nodes_of("fleet", fleet=tmp_path / "none.yaml")
    for robot in ("tb9", ""):
        with pytest.raises(TestudoError, match=f"there is no '{robot}'"):
            nodes_of("robot", fleet=fleet.file, robot=robot)


@pytest.mark.parametrize("named", ["package", "path"])
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_an_argument_that_is_misspelt_is_refused_before_anything_starts(stand_ins, monkeypatch, kind, named):
    """`launch` itself takes it and says nothing: after `strat:=false` the robots would start by themselves."""
    file = PACKAGE / f"launch/{kind}.launch.py"
    words = ["ros2", "launch", *(["testudo_bringup", file.name] if named == "package" else [str(file)])]
    monkeypatch.setattr(sys, "argv", [*words, "fleet:=f.yaml", "strat:=false"])
    with pytest.raises(TestudoError, match=f"strat: unknown argument; {kind}.launch.py takes fleet, .*localhost"):
        describe(kind)
    monkeypatch.setattr(sys, "argv", [*words, "fleet:=f.yaml", "backend:=sim"])
    assert describe(kind)


def test_a_launch_file_that_includes_ours_may_have_other_arguments(stand_ins, monkeypatch, tmp_path):
    (tmp_path / "fleet.launch.py").touch()
    for words in (["lab_bringup", "fleet.launch.py"], [str(tmp_path / "fleet.launch.py")]):
        monkeypatch.setattr(sys, "argv", ["ros2", "launch", *words, "arena:=north"])
        assert describe("fleet")


def test_a_number_that_is_none_is_refused_in_one_sentence(stand_ins, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    for given, sentence in (
        ({"seed": "x"}, "seed: found 'x', expected a whole number"),
        ({"duration": "long"}, "duration: found 'long', expected a number"),
        ({"duration": "-1"}, "found -1, expected a time-out from 0.1 to 86400 s"),
    ):
        with pytest.raises(TestudoError, match=sentence):
            nodes_of("fleet", fleet=fleet.file, **given)


def test_a_node_that_refuses_ends_the_launch_and_one_that_dies_later_does_not(stand_ins, tmp_path):
    node = nodes_of("fleet", fleet=make_tiny_fleet(tmp_path, 1).file)[0]
    for status in (0, 1, -9):
        assert node.on_exit(SimpleNamespace(returncode=status, process_name="guard_node-1"), {}) is None
    with pytest.raises(TestudoError, match="guard_node-1 refused to start"):
        node.on_exit(SimpleNamespace(returncode=2, process_name="guard_node-1"), {})


def test_a_launch_that_is_to_end_when_all_have_arrived_ends_with_its_task_node_and_no_other(stand_ins, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    with pytest.raises(TestudoError, match="until: found 'arrived' for a fleet without `orders: true`"):
        nodes_of("fleet", fleet=fleet.file, until="arrived")
    save_fleet(replace(fleet, task={}, orders=True), fleet.file)
    nodes = {node.name: node for node in nodes_of("fleet", fleet=fleet.file, until="arrived")}
    assert nodes["task"].parameters[0]["until"] == "arrived"
    ended = {name: node.on_exit(SimpleNamespace(returncode=0, process_name=name), {}) for name, node in nodes.items()}
    assert [name for name, actions in ended.items() if actions] == ["task"]
    assert not nodes["task"].on_exit(SimpleNamespace(returncode=-9, process_name="task"), {})  # a crash is no arrival
    with pytest.raises(TestudoError, match="refused to start"):
        nodes["task"].on_exit(SimpleNamespace(returncode=2, process_name="task"), {})


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_the_real_launch_makes_the_nodes_of_the_plan(shared, tmp_path, kind):
    launch = pytest.importorskip("launch", reason="`launch` is not installed: it comes with ROS 2")
    pytest.importorskip("launch_ros", reason="`launch_ros` is not installed: it comes with ROS 2")
    fleet = make_tiny_fleet(tmp_path, 2)
    real = launch.LaunchContext()
    own = {"robot": "r1"} if kind == "robot" else {"run_folder": "none"}
    real.launch_configurations.update(fleet=str(fleet.file), **own)
    *arguments, last = describe(kind)
    for argument in arguments:
        argument.visit(real)
    nodes = last.visit(real)
    processes = plan(fleet, run_folder=None, log_level="info", **PARTS[kind])
    assert [node.node_executable for node in nodes] == [item.executable for item in processes]
    assert [node.node_package for node in nodes] == [item.package for item in processes]


def test_a_fleet_is_recorded_into_a_dated_folder_unless_somebody_says_none(stand_ins, tmp_path):
    file = make_tiny_fleet(tmp_path, 2).file

    def recorders(**given):
        return [node for node in nodes_of("fleet", fleet=file, **given) if node.name == "recorder"]

    assert Path(recorders()[0].parameters[0]["run_folder"]).parent == Path("runs").absolute()
    assert recorders(run_folder=tmp_path / "x")[0].parameters[0]["run_folder"] == str(tmp_path / "x")
    assert recorders(run_folder="none") == recorders(run_folder="") == []


@pytest.mark.parametrize(
    ("backend", "localhost", "here"),
    [("sim", "auto", True), ("hw", "auto", False), ("sim", "false", False), ("hw", "true", True)],
)
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_with_the_plant_nodes_speak_on_this_machine_only(stand_ins, tmp_path, kind, backend, localhost, here):
    given = {"fleet": make_tiny_fleet(tmp_path, 2).file, "backend": backend, "localhost": localhost}
    nodes = nodes_of(kind, **given, **({"robot": "r1"} if kind == "robot" else {}))
    assert all(node.additional_env == (LOOPBACK if here else {}) for node in nodes)


def test_people_may_keep_the_start_for_themselves(stand_ins, tmp_path):
    nodes = nodes_of("station", fleet=make_tiny_fleet(tmp_path, 2).file, start="false")
    assert {node.name: node.parameters[1].get("start") for node in nodes}["station"] is False


def test_own_parameters_come_before_those_of_the_plan_and_decide_nothing_of_it(stand_ins, tmp_path):
    fleet, file = make_tiny_fleet(tmp_path, 2).file, tmp_path / "own.yaml"
    file.write_text("/r0/guard: {ros__parameters: {enable_stamped_cmd_vel: false}}\n")
    for node in nodes_of("station", fleet=fleet, params_file=file):
        assert node.parameters[0] == str(file)
        assert node.parameters[1]["fleet"] == str(fleet)
    file.write_text("r0: {guard: {ros__parameters: {backend: sim}}}\n/**: {ros__parameters: {lock_step: true}}\n")
    with pytest.raises(TestudoError, match=r"own\.yaml: found backend, lock_step, expected none of them"):
        nodes_of("fleet", fleet=fleet, params_file=file)
    with pytest.raises(TestudoError, match="no such params_file"):
        nodes_of("fleet", fleet=fleet, params_file="none.yaml")


def test_nodes_start_again_only_if_that_is_asked_for_and_never_recorder_plant_or_station(stand_ins, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1).file
    assert not any(node.respawn for node in nodes_of("fleet", fleet=fleet))
    again = {node.name for node in nodes_of("fleet", fleet=fleet, respawn="true", watch="task,markers") if node.respawn}
    assert again == {"guard", "policy", "emergency_stop", "markers"}
    with pytest.raises(TestudoError, match="respawn: found true with lock_step true"):
        nodes_of("fleet", fleet=fleet, respawn="true", lock_step="true")
