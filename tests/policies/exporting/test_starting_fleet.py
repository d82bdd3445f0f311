"""The fleet file of a fresh policy: it pins the file, loads, and starts where paths cross."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.policies.quick import TINY

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot, robot_files
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED
from testudo_policies.exporting.starting_fleet import write_fleet
from testudo_policies.learning.builder import build

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def workshop():
    return build(TINY)


@pytest.fixture(scope="module")
def fleet(tiny_export, workshop, tmp_path_factory, quick):
    folder = tmp_path_factory.mktemp("fleet") / "new"
    return load_fleet(write_fleet(workshop, tiny_export, folder / "fleet.yaml", 0))


def test_it_pins_the_file_and_names_it_relative_to_itself(fleet, tiny_export):
    assert fleet.policy_sha256 == tiny_export.sha256
    assert fleet.policy.samefile(tiny_export.path)
    assert f"policy_sha256: {tiny_export.sha256}" in fleet.file.read_text()
    assert str(tiny_export.path.parent) not in fleet.file.read_text()
    for robot in fleet.robots:
        PolicyArtefact.load(fleet.policy, robot=robot.spec, sha256=fleet.policy_sha256)


def test_it_holds_the_team_within_the_arena_and_apart(fleet, workshop):
    spec = load_robot("gritsbot_x")
    assert fleet.names == ("r0", "r1")
    arena, shield = workshop.environment.scenario.arena, workshop.shield
    for robot in fleet.robots:
        assert (robot.type, robot.spec) == ("gritsbot_x", spec)
        assert abs(robot.initial_yaw) <= math.pi
        for place in (robot.initial_position_world, robot.goal_world):
            for low, value, high in zip(arena.low_world, place, arena.high_world, strict=True):
                assert low + shield.wall_m < value < high - shield.wall_m
    for one, other in itertools.combinations(fleet.robots, 2):
        for key in ("initial_position_world", "goal_world"):
            gap = math.dist(getattr(one, key), getattr(other, key))
            assert gap >= shield.separation_m + 0.1 - 1e-3


def test_straight_paths_cross_in_it(fleet):
    def side(a, b, point):
        return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

    (a, b), (c, d) = ((robot.initial_position_world, robot.goal_world) for robot in fleet.robots)
    assert side(a, b, c) * side(a, b, d) < 0
    assert side(c, d, a) * side(c, d, b) < 0


def test_another_seed_is_another_start_and_the_same_seed_the_same_file(fleet, workshop, tiny_export, tmp_path):
    again = write_fleet(workshop, tiny_export, fleet.file.parent / "again.yaml", 0)
    assert again.read_text() == fleet.file.read_text()
    other = load_fleet(write_fleet(workshop, tiny_export, tmp_path / "other.yaml", 100))
    assert other.robots[0].goal_world != fleet.robots[0].goal_world


@pytest.mark.parametrize("seed", [-1, 2**31 - HELD_OUT_SEED])
def test_a_seed_beyond_the_held_out_ones_is_refused(seed, workshop, tiny_export, tmp_path):
    with pytest.raises(TestudoError, match=f"--seed: found {seed}, expected 0 to"):
        write_fleet(workshop, tiny_export, tmp_path / "fleet.yaml", seed)
    assert not list(tmp_path.iterdir())


def test_an_own_robot_in_space_is_named_relative_to_the_file(tmp_path):
    own = tmp_path / "robots" / "own_drone.toml"
    own.parent.mkdir()
    own.write_text(robot_files()["crazyflie_2x"].read_text().replace("crazyflie_2x", "own_drone"))
    workshop = build(replace(TINY, robot=str(own), team_size=3))
    report = SimpleNamespace(path=tmp_path / "policy.onnx", sha256="0" * 64)
    fleet = load_fleet(write_fleet(workshop, report, tmp_path / "fleets" / "fleet.yaml", 0))
    assert {robot.type for robot in fleet.robots} == {"../robots/own_drone.toml"}
    assert {robot.spec.name for robot in fleet.robots} == {"own_drone"}
    for robot in fleet.robots:
        assert len(robot.initial_position_world) == len(robot.goal_world) == 3
        assert robot.initial_yaw == 0
