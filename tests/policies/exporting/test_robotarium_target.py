"""The script for the Robotarium drives as our robots would on the same poses, with NumPy alone, and never open."""

import importlib.util
import inspect
import json
import sys
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import jax
import numpy as np
import pytest
from onnx import helper
from tests.policies.exporting.robotarium_stand_in import CONTACT_M, InProcess, StandIn
from tests.policies.quick import TINY
from tests.test_layout import run_python

from testudo_deploy.cli import main
from testudo_deploy.contract.contract import Signal
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.exporting import robotarium_script
from testudo_policies.exporting.numpy_graph import read_graph
from testudo_policies.exporting.onnx_export import export_policy
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.exporting.parity import random_inputs
from testudo_policies.exporting.robotarium_script import (
    Episode,
    arena_on_testbed,
    check_testbed,
    draw_episode,
    load_script,
    script_bundle,
    script_text,
    write_script,
)
from testudo_policies.learning.builder import build
from testudo_sim.go_to_goal import go_to_goal_contract
from testudo_sim.scenarios.goal_scenario import ROBOTARIUM

pytestmark = pytest.mark.usefixtures("quick")

STEPS = 200
ANGLES = 0.3 + np.pi / 2 * np.arange(4)
STARTS = np.stack([0.75 * np.cos(ANGLES), 0.7 * np.sin(ANGLES), ANGLES - 2.0]).round(4)
CROSSING = Episode(STARTS, -STARTS[:2], STEPS * 0.033)
"""Four robots that change places through the middle, so that the shield acts."""


@pytest.fixture(scope="module")
def waypoints(quick, tmp_path_factory):
    """Return an untrained policy with memory that chooses way-points."""
    components = build(replace(TINY, team_size=4, memory=8, command="waypoints"))
    step = components.agent.policy(jax.device_get(components.learner.start(jax.random.key(1)).parameters))
    contract = make_contract(components, [])
    examples = random_inputs(contract, 4, 3, np.random.default_rng(0))
    examples.pop("hidden")
    path = tmp_path_factory.mktemp("waypoints") / "policy.onnx"
    export_policy(step, contract, examples, path)
    return PolicyArtefact.load(path)


@pytest.fixture(params=["velocity", "waypoints"])
def artefact(request):
    """Return a policy file: velocities from a tiny trained run without memory, or way-points with memory."""
    if request.param == "waypoints":
        return request.getfixturevalue("waypoints")
    return PolicyArtefact.load(request.getfixturevalue("tiny_export").path)


@pytest.fixture
def script(artefact):
    return load_script(script_text(artefact, CROSSING))


def recorded_run(monkeypatch, script, base, **changes):
    """Run the script's `main` on a simulator and return the poses (T, 3, N) and commands (T, 2, N) that went by."""
    poses, commands = [], []

    class Recorded(base):
        def __init__(self, **options):
            super().__init__(**(options | changes))

        def get_poses(self):
            poses.append(super().get_poses())
            return poses[-1].copy()

        def set_velocities(self, ids, velocities):
            if len(poses) > len(commands):
                commands.append(velocities.copy())
            super().set_velocities(ids, velocities)

    module = ModuleType("rps.robotarium")
    module.Robotarium = Recorded
    monkeypatch.setitem(sys.modules, "rps", ModuleType("rps"))
    monkeypatch.setitem(sys.modules, "rps.robotarium", module)
    script.SHOW_FIGURE = False
    script.main()
    return np.array(poses), np.array(commands)


def assert_as_in_process(artefact, poses, commands):
    ours = InProcess(artefact, CROSSING.goals_world)
    expected = np.array([ours.commands(pose) for pose in poses])
    assert commands.shape == expected.shape == (STEPS, 2, 4)
    assert np.abs(commands - expected).max() <= 1e-5
    assert np.abs(commands[:, 0]).max() > 0.05  # the robots drive


def test_the_first_200_commands_are_ours_on_the_stand_in(monkeypatch, artefact, script):
    poses, commands = recorded_run(monkeypatch, script, StandIn)
    assert_as_in_process(artefact, poses, commands)
    apart = np.linalg.norm(poses[:, :2, :, None] - poses[:, :2, None, :], axis=1)
    assert apart[:, ~np.eye(4, dtype=bool)].min() > CONTACT_M


def test_the_first_200_commands_are_ours_in_the_official_simulator(monkeypatch, artefact, script):
    if importlib.util.find_spec("rps") is None:
        pytest.skip("the Robotarium's Python simulator (package rps) is not installed")
    official = import_module("rps.robotarium").Robotarium
    poses, commands = recorded_run(monkeypatch, script, official, sim_in_real_time=False, skip_initialization=True)
    assert_as_in_process(artefact, poses, commands)


ALONE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.stdlib_module_names | {"numpy"}:
            raise ImportError(f"{name} is not there on the testbed", name=name)
sys.meta_path.insert(0, Blocker())
import numpy as np
for name in ("concat", "astype"):  # as in NumPy 1
    vars(np).pop(name, None)
exec(compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec"))
"""


def test_it_needs_numpy_alone_and_that_of_version_1(tmp_path, artefact, script):
    path = tmp_path / "script.py"
    drive = "\nteam = make_team()\nprint([team.commands(START_POSES).tolist() for _ in range(13)])\n"
    text = script_text(artefact, CROSSING).replace('if __name__ == "__main__":\n    main()\n', drive)
    path.write_text(text, encoding="utf-8")
    result = run_python(ALONE, str(path))
    assert result.returncode == 0, result.stderr
    team = script.make_team()
    expected = [team.commands(STARTS) for _ in range(13)]
    np.testing.assert_allclose(json.loads(result.stdout), expected, atol=1e-12)


def test_its_code_is_that_of_the_robots():
    pieces = script_bundle().pieces
    for piece in pieces:
        assert piece.renamed or piece.text in inspect.getsource(import_module(piece.module)), piece.names
    assert {(piece.module.rpartition(".")[2], piece.names) for piece in pieces if piece.renamed} == {
        ("contract", ("VELOCITY_YAW_RATE",)),  # its value, in place of the one of a module
        ("geometry", ("_TINY",)),  # the motion models have another
        ("geometry", ("fraction_along",)),
        ("sensed_bodies", ("_FAR_M",)),  # rows of a scanner, which this testbed lacks
        ("sensed_bodies", ("body_rows",)),
    }
    copied = {name for piece in pieces for name in piece.names}
    assert {"project_velocity", "pair_rows", "WaypointTracking", "PolicyDecisions", "VelocityFilter"} <= copied
    assert not copied & {"SPEC", "SHIELD", "ARENA", "CONTRACT", "INPUTS", "NODES", "ARRAYS", "make_team", "main"}


def test_its_figures_are_those_of_the_contract(artefact, script):
    contract = artefact.contract
    assert vars(script.SHIELD) == vars(contract.shield) | {"terms": ()}
    assert (script.ARENA.low_world, script.ARENA.high_world) == ((-1.6, -1.0), (1.6, 1.0))
    assert script.CONTRACT.decision_ticks == contract.decision_ticks
    np.testing.assert_array_equal(script.START_POSES, STARTS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e300])
def test_a_pose_that_is_not_finite_or_jumps_stops_all_robots(script, value):
    team = script.make_team()
    for _ in range(3):
        commands = team.commands(STARTS)
    assert np.abs(commands).max(axis=0).min() > 0
    spoiled = STARTS.copy()
    spoiled[1, 2] = value
    assert (team.commands(spoiled) == 0).all()
    assert team.reason
    for _ in range(3):
        commands = team.commands(STARTS)
    assert np.abs(commands).max(axis=0).min() > 0
    assert not team.reason


def test_another_number_of_robots_is_refused(script):
    with pytest.raises(ValueError, match=r"poses: found shape \(3, 5\), expected \(3, 4\) for 4 robots"):
        script.make_team().commands(np.zeros((3, 5)))
    script.START_POSES = STARTS[:, :3]
    with pytest.raises(SystemExit, match=r"START_POSES: found shape \(3, 3\), expected \(3, 4\), one per goal"):
        script.main()


def test_it_does_not_drive_where_it_computes_something_else(script):
    script.NODES[:] = [("Sin" if kind == "Tanh" else kind, *rest) for kind, *rest in script.NODES]
    with pytest.raises(SystemExit, match="deviates from its test vector"):
        script.main()


# ---- what is not written


def test_a_script_that_deviates_is_not_written(monkeypatch, tmp_path, artefact):
    monkeypatch.setattr(robotarium_script, "REPLAY_TOLERANCE", -1.0)
    monkeypatch.setattr(robotarium_script, "load_script", lambda text: load_script(text.replace("-1.0:", "1:")))
    with pytest.raises(TestudoError, match="deviates from the policy by"):
        write_script(artefact, CROSSING, tmp_path / "robotarium.py")
    assert not list(tmp_path.iterdir())


def test_a_signal_that_the_testbed_cannot_give_is_named():
    contract = go_to_goal_contract(load_robot("gritsbot_x"), arena=ROBOTARIUM)
    signals = (*contract.signals, Signal("prey_position_world", (2,), "m", "world", None))
    with pytest.raises(TestudoError, match="reads prey_position_world, which the script cannot give"):
        check_testbed(contract.replace(signals=signals), 4)


def test_goals_that_move_with_the_task_are_refused():
    with pytest.raises(TestudoError, match=r"'pickup_delivery' reads .*the script cannot give"):
        draw_episode(build(replace(TINY, scenario="pickup_delivery")), 0)


@pytest.mark.parametrize("robot", ["crazyflie_2x", "turtlebot3_burger"])
def test_another_robot_is_refused(robot):
    with pytest.raises(TestudoError, match=f"found {robot}, a .* expected a differential drive controlled every 0.033"):
        check_testbed(go_to_goal_contract(load_robot(robot), arena=None), 4)


@pytest.mark.parametrize("robots", [0, 51])
def test_a_team_that_the_testbed_has_no_room_for_is_refused(robots):
    with pytest.raises(TestudoError, match=f"found {robots} robots, expected 1 to 50"):
        check_testbed(go_to_goal_contract(load_robot("gritsbot_x"), arena=None), robots)


def test_an_operation_that_is_not_known_is_refused():
    graph = helper.make_graph([helper.make_node("Erf", ["a"], ["b"])], "g", [], [])
    with pytest.raises(TestudoError, match="found the operation Erf, expected one of Add"):
        read_graph(helper.make_model(graph))


# ---- the command


def test_swap_keeps_to_the_part_of_its_arena_that_the_testbed_has():
    components = build(replace(TINY, scenario="swap", team_size=4))
    arena = components.environment.scenario.arena
    episode = draw_episode(components, 0)
    assert arena.high_world[1] > 1 > np.abs(episode.goals_world[1]).max()
    kept = arena_on_testbed(arena)
    assert (kept.low_world, kept.high_world) == ((-arena.high_world[0], -1.0), (arena.high_world[0], 1.0))


def test_export_writes_the_script_and_nothing_else(tiny_run, tmp_path, capsys):
    path = tmp_path / "robotarium.py"
    words = ["export", str(tiny_run), "--target", "robotarium", "--out", str(path), "--json", str(tmp_path / "n.json")]
    assert main(words) == 0
    assert "upload the file" in capsys.readouterr().out
    assert {item.name for item in tmp_path.iterdir()} == {"robotarium.py", "n.json"}
    script = load_script(path.read_text(encoding="utf-8"))
    assert script.make_team().size == TINY.team_size
    assert main([*words, "--fleet", str(tmp_path / "fleet.yaml")]) == 2
    assert "--fleet: found with --target robotarium" in capsys.readouterr().err
