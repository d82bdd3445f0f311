"""A contract survives the way through JSON unchanged, and every flaw is refused by its name."""

import json
import math

import pytest
from tests.deploy.noisy_robot import noisy
from tests.deploy.tiny_policy import draft_contract, tiny_model, with_test_vector

from testudo_deploy.contract.contract import PolicyContractError, Signal, robot_signals
from testudo_deploy.contract.rules import check_robot, graph_inputs, read_contract
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import load_robot, parse_robot

ROBOTS = ("gritsbot_x", "crazyflie_2x", "robomaster_s1")


def complete(name, hidden_size=4):
    contract = draft_contract(load_robot(name), hidden_size)
    return with_test_vector(contract, tiny_model(contract))


@pytest.fixture(scope="module")
def contract():
    return complete("gritsbot_x")


def edited(contract, path, value):
    """Return the JSON text with one value changed; ``path`` is like `signals.0.unit`."""
    values = json.loads(contract.to_json())
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = values
    for part in parents:
        place = place[part]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return json.dumps(values)


def changed_robot(spec, key, value):
    """Return the robot with one quantity changed."""
    section, name = key.split(".")
    tables = spec.to_dict()
    tables[section][name] |= {"value": value, "interval": [value, value]}
    return parse_robot(tables, "changed")


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("hidden_size", [0, 4])
def test_json_round_trip_is_exact(name, hidden_size):
    contract = complete(name, hidden_size)
    assert read_contract(contract.to_json()) == contract


def test_numbers_keep_full_precision(contract):
    precise = contract.replace(evaluation={"success": 0.1 + 0.2, "tiny": 5e-324})
    assert read_contract(precise.to_json()).evaluation == precise.evaluation


def test_a_contract_without_walls_is_read(contract):
    assert read_contract(contract.replace(arena=None).to_json()).arena is None


OBSTACLES = (Ball((0.5, 0.1), 0.2), Capsule((0.0, 0.0), (0.3, 0.1), 0.05), Block((-0.5, 0.0), (0.2, 0.1), 0.3))


def test_obstacles_of_each_kind_are_read_as_they_were_written(contract):
    arena = Arena(contract.arena.low_world, contract.arena.high_world, OBSTACLES)
    assert read_contract(contract.replace(arena=arena).to_json()).arena == arena


def test_an_arena_without_the_key_has_no_obstacles(contract):
    values = json.loads(contract.to_json())
    del values["arena"]["obstacles"]
    assert read_contract(json.dumps(values)) == contract


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (3, r"arena.obstacles\[1\]: found 3, expected an object"),
        ({"radius_m": 0.1}, r"obstacles\[1\].kind: found None, expected one of ball, capsule, box"),
        ({"kind": "cone"}, r"obstacles\[1\].kind: found 'cone', expected one of ball, capsule, box"),
        ({"kind": "ball", "radius_m": 0.1}, r"obstacles\[1\].centre_world: missing; expected a list"),
        ({"kind": "ball", "centre_world": [0, 0], "radius": 0.1}, r"obstacles\[1\].radius_m: missing"),
        (
            {"kind": "ball", "centre_world": [0, 0], "radius_m": 0.1, "yaw": 0.0},
            r"obstacles\[1\].yaw: unknown key; known are centre_world, radius_m, kind",
        ),
        (
            {"kind": "ball", "centre_world": [0, 0, 0], "radius_m": 0.1},
            r"arena.obstacles\[1\].centre_world: found .*, expected 2 numbers",
        ),
        (
            {"kind": "ball", "centre_world": [0, 0], "radius_m": -0.1},
            r"arena.obstacles\[1\].radius_m: found -0.1, expected above 0",
        ),
        (
            {"kind": "box", "centre_world": [0, 0], "half_size_m": [0.1, 0.0], "yaw": 0},
            r"arena.obstacles\[1\].half_size_m: found \(0.1, 0.0\), expected above 0",
        ),
    ],
)
def test_what_is_no_obstacle_is_refused(contract, entry, expected):
    sound = {"kind": "ball", "centre_world": [0.5, 0.1], "radius_m": 0.2}
    with pytest.raises(PolicyContractError, match=expected):
        read_contract(edited(contract, "arena.obstacles", [sound, entry]))


def test_graph_inputs_are_the_signals_and_the_hidden_state(contract):
    shapes = graph_inputs(contract)
    assert list(shapes)[-1] == "hidden"
    assert shapes["neighbour_position_world"] == ("neighbours", 2)
    assert shapes["neighbour_age"] == ("neighbours",)
    assert "hidden" not in graph_inputs(contract.replace(hidden_size=0))


@pytest.mark.parametrize("name", ROBOTS)
def test_robot_signals_have_the_dimension_of_the_robot(name):
    spec = load_robot(name)
    shapes = {signal.name: signal.shape for signal in robot_signals(spec)}
    assert shapes["control_point_world"] == (spec.dimension,)
    assert shapes["neighbour_velocity_world"] == ("neighbours", spec.dimension)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("version", "testudo/contract/2", "version: found 'testudo/contract/2'.*update this softw"),
        ("version", "testudo/contract/0", "version: .*expected 'testudo/contract/1'; export"),
        ("version", KeyError, "version: found None"),
        ("shield.version", 99, r"shield\.version: found 99, expected 3"),
        ("shield", KeyError, r"shield\.version: found None"),
        ("extra", 1, "contract.extra: unknown key; known are version, scenario"),
        ("scenario", KeyError, "contract.scenario: missing; expected a text"),
        ("scenario", 7, "contract.scenario: found 7, expected a text"),
        ("team_size", 4.0, "contract.team_size: found 4.0, expected a whole number"),
        ("team_size", True, "contract.team_size: found True, expected a whole number"),
        ("control_period_s", "0.033", "control_period_s: found '0.033', expected a number"),
        ("signals", {}, "contract.signals: found {}, expected a list"),
        ("signals.2.unit", KeyError, r"contract.signals\[2\].unit: missing"),
        ("signals.2.scale", 1, r"contract.signals\[2\].scale: unknown key"),
        (
            "signals.0.shape.0",
            2.5,
            r"signals\[0\].shape\[0\]: found 2.5, expected a whole num",
        ),
        ("evaluation.success", math.nan, "evaluation.success: found nan, expected a finite number"),
        ("command.limit", math.inf, "command.limit: found inf, expected a finite number"),
        ("shield.terms.0.value_m", math.nan, r"terms\[0\].value_m: found nan"),
        ("provenance", [], r"provenance: found \[\], expected an object"),
    ],
)
def test_what_cannot_be_read_is_refused(contract, path, value, expected):
    with pytest.raises(PolicyContractError, match=expected):
        read_contract(edited(contract, path, value))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("control_period_s", 0.02, "contract_hash"),
        ("shield.separation_m", 0.1, "contract_hash"),
        ("dead_man_s", 0.5, "contract_hash"),
        ("decision_ticks", 5, "contract_hash"),
        ("contract_hash", KeyError, "contract_hash: found None"),
        ("robot", "turtlebot4", "robot: found 'turtlebot4', expected 'gritsbot_x'"),
        ("robot_spec.limits.speed.value", 0.1, "robot_spec: limits.speed.interval"),
        ("robot_spec.description", "another", "robot_sha256"),
        ("dimension", 3, "dimension: found 3, expected 2"),
        ("hold_rule", "first_order", "hold_rule: found 'first_order', expected 'zero_order"),
        ("command.type", "wheel_speeds", "command.type"),
        ("command.unit", "km/h", "command.unit: found 'km/h', expected 'm/s'"),
        ("command.limit", 0.0, "command.limit: found 0.0, expected above 0"),
        ("hidden_size", -1, "hidden_size: found -1, expected 0 or more"),
        ("team_size", 0, "team_size: found 0"),
        ("arena.high_world", [1.0, 1.0, 1.0], "arena: .*expected 2 numbers each"),
        ("arena.high_world", [-2.0, 1.0], "expected low below high"),
        ("signals.0.unit", "mm", "unit of position_world: found 'mm', expected 'm'"),
        ("signals.0.shape", [3], r"shape of position_world: found \(3,\), expected \(2,\)"),
        ("signals.2.frame", "world", "frame of velocity: found 'world', expected 'body'"),
        ("signals.1.name", "position_world", r"signals\[1\].name: found 'position_world'"),
        ("signals.8.shape", ["peers", 2], "shape of goal_world: found .*'neighbours'"),
        ("signals.8.shape", [2, "neighbours"], "expected lengths above 0, or 'neighbours' as the"),
        ("signals.8.shape", [0], "expected lengths above 0"),
        ("signals.7.name", "neighbour_trust", "neighbour_valid is missing"),
        ("test_vector.inputs.yaw", KeyError, "test_vector.inputs: found .*expected .*yaw"),
        ("test_vector.inputs.yaw", [[1.0]], r"inputs.yaw: found shape \(1, 1\)"),
        ("test_vector.outputs.command", [["fast"]], "outputs.command: not an array of numbers"),
        ("test_vector.outputs", {}, "test_vector.outputs: found none"),
    ],
)
def test_what_contradicts_itself_is_refused(contract, path, value, expected):
    with pytest.raises(PolicyContractError, match=expected):
        read_contract(edited(contract, path, value))


def test_a_separation_that_is_not_the_sum_of_its_terms_is_refused(contract):
    shield = contract.replace(shield=_changed(contract.shield, separation_m=0.2))
    with pytest.raises(PolicyContractError, match=r"separation_m: found 0\.2, expected the sum"):
        read_contract(shield.to_json())


def test_a_hold_shorter_than_the_dead_man_time_is_refused(contract):
    shield = contract.replace(shield=_changed(contract.shield, hold_s=0.033))
    with pytest.raises(PolicyContractError, match=r"hold_s: found 0\.033, expected at least 0\.133"):
        read_contract(shield.to_json())


def test_the_residual_motion_of_a_robot_file_is_in_its_contract_and_no_margin_lacks_it():
    plain = load_robot("gritsbot_x")
    draft = draft_contract(noisy(plain, along_deviation=0.01))
    made = with_test_vector(draft, tiny_model(draft))
    again = read_contract(made.to_json())
    assert again == made
    assert again.contract_hash != draft_contract(plain).contract_hash
    assert again.shield.separation_m > projection_parameters(plain).separation_m
    with pytest.raises(PolicyContractError, match=r"motion_noise differs"):
        check_robot(made, plain, "policy.onnx")
    without = made.replace(shield=projection_parameters(plain))
    with pytest.raises(
        PolicyContractError, match=r"shield\.terms: found 0 m for 'residual motion', expected at least 0\.0"
    ):
        read_contract(without.to_json())


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "[" * 100_000])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(PolicyContractError, match=r"policy\.onnx: "):
        read_contract(text, "policy.onnx")


def test_a_number_that_is_not_finite_is_not_written(contract):
    with pytest.raises(PolicyContractError, match="cannot be written"):
        contract.replace(evaluation={"success": math.nan}).to_json()


def test_hash_covers_what_peers_rely_on_and_nothing_else(contract):
    same = contract.replace(evaluation={}, provenance={}, team_size=9, scenario="other")
    assert same.contract_hash == contract.contract_hash
    for changes in (
        {"control_period_s": 0.02},
        {"dead_man_s": 0.2},
        {"decision_ticks": 3},
        {"robot_sha256": "0"},
        {"shield": _changed(contract.shield, gap_share=0.5)},
    ):
        assert contract.replace(**changes).contract_hash != contract.contract_hash


def test_its_own_robot_is_accepted(contract):
    check_robot(contract, load_robot("gritsbot_x"), "contract")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("timing.control_period", 0.02, "control_period_s: found 0.033, this robot has 0.02"),
        ("timing.dead_man", 0.5, "dead_man_s: found 0.1, this robot has 0.5"),
        ("limits.speed", 0.1, r"limits\.speed\.value differs: found 0\.2, this robot has 0\.1"),
    ],
)
def test_another_robot_is_refused_with_both_values(contract, key, value, expected):
    robot = changed_robot(load_robot("gritsbot_x"), key, value)
    with pytest.raises(PolicyContractError, match=expected):
        check_robot(contract, robot, "contract")


def test_another_kind_of_robot_is_refused_by_name(contract):
    with pytest.raises(PolicyContractError, match="found 'gritsbot_x', this robot has 'turtlebot4'"):
        check_robot(contract, load_robot("turtlebot4"), "contract")


def test_a_signal_that_nobody_gives_is_refused(contract):
    with pytest.raises(PolicyContractError, match=r"signals\[8\].name: found 'goal_world', which is not"):
        check_robot(contract, load_robot("gritsbot_x"), "contract", task_signals=())


def test_a_policy_that_must_see_a_box_is_refused_on_a_robot_that_sees_none(contract):
    box = Signal("box_position_world", (2,), "m", "world", None)
    pushing = contract.replace(scenario="push_box", signals=(*contract.signals, box))
    with pytest.raises(PolicyContractError, match=r"found 'box_position_world', .* policy of 'push_box' needs it"):
        check_robot(pushing, load_robot("gritsbot_x"), "contract")


def _changed(shield, **changes):
    return type(shield)(**{**{name: getattr(shield, name) for name in vars(shield)}, **changes})
