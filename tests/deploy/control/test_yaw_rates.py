"""A policy that commands a yaw rate beside the velocity: its contract, its loop, its guard, and the unmoved shield."""

import dataclasses
import json
import math

import numpy as np
import pytest
from rich.console import Console
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import draft_contract

from testudo_deploy.admission.fleet_admission import check_commands
from testudo_deploy.commands.inspect import artefact_report
from testudo_deploy.contract.command_types import (
    CommandTypeError,
    check_velocities_alone,
    split_output,
    velocity_command,
)
from testudo_deploy.contract.contract import Command, PolicyContractError
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import check_contract, check_robot, graph_outputs, read_contract
from testudo_deploy.control.control_tick import FlightPhase
from testudo_deploy.control.pose_validator import PoseValidator
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy

DRONE, GROUND = load_robot("crazyflie_2x"), load_robot("gritsbot_x")
KIND = "velocity_yaw_rate_world"
LIMIT = DRONE.yaw_rate_limit_rad_s
QUARTER = math.pi / 2
NO_TABLE = dataclasses.replace(DRONE, heading={})


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    """The file of a policy that turns at half a radian per second."""
    path = tmp_path_factory.mktemp("turning") / "policy.onnx"
    write_go_to_goal_policy(path, DRONE, yaw_rate=0.5)
    return PolicyArtefact.load(path, robot=DRONE)


# ---- the contract


def test_the_file_says_four_numbers_their_units_and_both_limits(turning):
    contract = turning.contract
    assert contract.command == Command(KIND, "m/s, m/s, m/s, rad/s", DRONE.control_point_speed_m_s, ((-LIMIT, LIMIT),))
    assert graph_outputs(contract)["command"] == (4,)
    assert contract.dimension == 3
    assert read_contract(contract.to_json()).command == contract.command
    assert contract.contract_hash == draft_contract(DRONE).replace(shield=contract.shield).contract_hash


def test_files_of_velocities_say_what_they_said():
    assert velocity_command("control_point_velocity_world", DRONE) == Command(
        "control_point_velocity_world", "m/s", DRONE.control_point_speed_m_s
    )
    assert set(json.loads(draft_contract(DRONE).to_json())["command"]) == {"type", "unit", "limit"}


def test_inspect_shows_the_channels_and_the_limits(turning):
    console = Console(width=200, record=True)
    report = artefact_report(turning.path)
    console.print(*report.tables)
    text = console.export_text()
    assert f"{KIND}, at most 1 m/s, yaw_rate -1 to 1" in text


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            GROUND,
            rf"found '{KIND}', expected 'control_point_velocity_world': gritsbot_x is a differential_drive without",
        ),
        (NO_TABLE, r"crazyflie_2x is a velocity_point without \[heading\] in its file"),
        (dataclasses.replace(DRONE, attitude={}), r"crazyflie_2x is a velocity_point without \[attitude\] in its file"),
    ],
)
def test_a_robot_without_the_table_refuses_it(turning, spec, text):
    with pytest.raises(PolicyContractError, match=text):
        velocity_command(KIND, spec)
    if spec is not GROUND:
        with pytest.raises(PolicyContractError, match=text):
            check_robot(turning.contract, spec, "here")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"limits": ()}, r"command\.limits: found 0 for velocity_yaw_rate_world, expected 1"),
        ({"limits": ((-1.0, 0.5),)}, r"limits of yaw_rate: found \(-1\.0, 0\.5\), expected symmetric limits"),
        ({"unit": "m/s"}, r"command\.unit: found 'm/s', expected 'm/s, m/s, m/s, rad/s'"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(turning, change, text):
    contract = turning.contract.replace(command=dataclasses.replace(turning.contract.command, **change))
    with pytest.raises(PolicyContractError, match=text):
        check_contract(contract, "here")


def test_more_than_the_robot_takes_is_refused_with_both_values(turning):
    command = dataclasses.replace(turning.contract.command, limits=((-2.0, 2.0),))
    with pytest.raises(
        PolicyContractError, match=r"limits of yaw_rate: found -2 to 2 rad/s, crazyflie_2x takes -1 to 1 rad"
    ):
        check_robot(turning.contract.replace(command=command), DRONE, "here")


def test_a_contract_of_a_ground_robot_cannot_say_it():
    contract = draft_contract(GROUND)
    command = Command(KIND, "m/s, m/s, m/s, rad/s", 1.0, ((-1.0, 1.0),))
    with pytest.raises(PolicyContractError, match="for a differential_drive, expected 'control_point_velocity_world'"):
        check_contract(contract.replace(command=command), "here")


def test_a_link_that_carries_none_is_refused_and_one_that_does_is_not(tmp_path, turning):
    fleet = make_tiny_fleet(tmp_path, 2, "crazyflie_2x")
    check_commands(fleet, turning.contract)
    link = dataclasses.replace(fleet.robots[0].link, profile=load_link("crazyswarm2"))
    other = dataclasses.replace(fleet, robots=tuple(dataclasses.replace(one, link=link) for one in fleet.robots))
    with pytest.raises(
        CommandTypeError,
        match=rf"robots\.r0\.link: found command\.type '{KIND}' in the policy, link "
        "'crazyswarm2' carries control_point_velocity_world",
    ):
        check_commands(other, turning.contract)


def test_what_knows_velocities_only_says_so(turning):
    with pytest.raises(CommandTypeError, match=rf"a dataset: found a policy of command\.type '{KIND}'"):
        check_velocities_alone(turning.contract.command, "a dataset")
    check_velocities_alone(draft_contract(DRONE).command, "a dataset")


# ---- the control loop


@pytest.fixture
def loop(make_loop):
    """A drone's loop under a stub policy that commands a velocity and ``rig.rate``."""

    def make(rate, **options):
        rig = make_loop(
            "crazyflie_2x", contract=lambda contract: contract.replace(command=velocity_command(KIND, DRONE)), **options
        )
        rig.policy.answer = lambda signals, hidden: (np.array([0.05, 0.05, 0.05, rate]), hidden)
        return rig

    return make


def test_the_output_is_split_and_the_rate_kept_within_its_limit(loop):
    for rate, sent in ((0.4, 0.4), (7.0, LIMIT), (-7.0, -LIMIT)):
        record = loop(rate).tick()
        assert (record.nominal_yaw_rate, record.sent_yaw_rate) == (rate, sent)
        assert record.nominal_world == pytest.approx((0.05,) * 3)
        assert len(record.sent_command) == 3
        assert TickRecord.decode(record.encode()) == record


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf])
def test_a_rate_that_is_no_number_brakes_and_turns_no_more(loop, rate):
    record = loop(rate).tick()
    assert record.reason.startswith("policy_error")
    assert (record.sent_yaw_rate, record.nominal_yaw_rate) == (0.0, 0.0)
    assert not any(record.sent_command)


def test_whatever_brakes_the_robot_ends_its_turn(loop):
    rig = loop(0.4)
    assert rig.tick().sent_yaw_rate == 0.4
    rig.now_s += 0.02
    rig.see()
    rig.hear()
    assert rig.loop.tick(rig.now_s, order="hold").sent_yaw_rate == 0.0
    assert rig.tick(0.5, sees=False).sent_yaw_rate == 0.0  # stale_pose
    assert rig.tick().sent_yaw_rate == 0.4
    rig.now_s += 0.02
    rig.see()
    rig.hear()
    down = rig.loop.tick(rig.now_s, order="land", flight=FlightPhase(velocity_world=(0.0, 0.0, -0.1)))
    assert any(down.sent_command)
    assert (down.sent_yaw_rate, down.nominal_yaw_rate) == (0.0, 0.0)


def test_a_record_of_before_is_read_as_one_that_does_not_turn(loop):
    values = json.loads(loop(0.4).tick().encode())
    del values["nominal_yaw_rate"], values["sent_yaw_rate"]
    record = TickRecord.decode(json.dumps(values).encode())
    assert (record.nominal_yaw_rate, record.sent_yaw_rate) == (0.0, 0.0)


def test_the_same_velocity_comes_out_of_the_shield_whatever_the_rate(loop):
    """A drone keeps a body free that is round about its axis: turning needs no space, and changes no velocity."""
    found = []
    for rate in (None, 0.0, 0.7, -7.0):
        rig = loop(rate)
        answer = np.array([0.9, 0.3, -0.2, *([] if rate is None else [rate])])
        rig.policy.answer = lambda signals, hidden, answer=answer: (answer, hidden)
        if rate is None:
            rig.loop._policy._command = velocity_command("control_point_velocity_world", DRONE)
        near = (0.95, 0.1, 0.0)
        rows = []
        for _ in range(25):
            rig.now_s += DRONE.control_period_s
            rig.see(velocity=(0.3, 0.1, 0.0), yaw=0.3)
            rig.hear(point=near, lane=(near, near))
            record = rig.loop.tick(rig.now_s)
            rows.append((record.status, record.shielded_world, record.sent_command, record.reserved_segment_world))
        assert {row[0] for row in rows} - {"passed"}, "the shield has something to do"
        found.append(rows)
    assert found[0] == found[1] == found[2] == found[3]


def test_outputs_without_a_rate_stay_as_they_are():
    output = np.array([1.0, 2.0, 3.0])
    assert split_output(velocity_command("control_point_velocity_world", DRONE), output)[0] is output


# ---- the guard


def passing_guard(limit):
    """Return a guard that passes commands on, and the time."""
    guard = CommandGuard(dimension=3, dead_man_s=0.1, yaw_rate_limit=limit)
    for k in range(60):
        guard.command(10.0 + 0.02 * k, (0.0, 0.0, 0.0), 10.0 + 0.02 * k)
    assert not guard.code
    return guard, 10.0 + 0.02 * 60


@pytest.mark.parametrize(
    ("limit", "rate", "code"),
    [
        (1.0, 0.9, ""),
        (1.0, -1.0, ""),
        (1.0, 1.1, "yaw_rate"),
        (1.0, -1e9, "yaw_rate"),
        (0.0, 0.1, "yaw_rate"),
        (0.0, 0.0, ""),
        (1.0, math.nan, "not_finite"),
        (1.0, math.inf, "not_finite"),
        (0.0, math.nan, "not_finite"),
    ],
)
def test_the_guard_passes_a_rate_that_vehicle_and_link_take_and_nothing_else(limit, rate, code):
    guard, now_s = passing_guard(limit)
    assert guard.command(now_s, (0.1, 0.0, 0.0), now_s, yaw_rate=rate) == (not code)
    assert guard.code == code
    assert guard.watch(now_s) == bool(code)


# ---- where it believes to be


def taken(spec, yaws, *, turns, period_s=0.02, gap_s=0.0):
    """Return whether each heading, one period after the other, is believed."""
    place, found = PoseValidator(spec, 0.1, turns=turns), []
    for k, yaw in enumerate(yaws):
        place.take(MotionState(np.zeros(3), np.array(yaw), np.zeros(3)), 10.0 + k * period_s + (gap_s if k else 0.0))
        found.append(place.located)
    return found


def test_a_turn_as_it_was_commanded_is_no_jump_and_without_a_command_it_is():
    yaws = np.arange(30) * 0.1 * LIMIT  # poses each 0.1 s
    assert all(taken(DRONE, yaws, turns=True, period_s=0.1))
    assert not all(taken(DRONE, yaws, turns=False, period_s=0.1))
    assert not all(taken(DRONE, 2 * yaws, turns=True, period_s=0.1))  # twice as fast as it may


@pytest.mark.parametrize("gap_s", [0.0, 0.3, 3.0, 60.0])
def test_half_a_turn_is_a_jump_after_any_gap(gap_s):
    assert taken(DRONE, [0.0, math.pi], turns=True, gap_s=gap_s) == [True, False]
    assert taken(DRONE, [0.0, QUARTER], turns=True, gap_s=gap_s) == [True, False]
