"""Types of command below velocities: read and checked, and refused wherever nothing bounds where they lead."""

import json

import numpy as np
import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import draft_contract
from tests.hardware import plain_messages as plain

from testudo_deploy.admission.fleet_admission import check_commands
from testudo_deploy.contract.command_types import FORMS, CommandTypeError, check_vehicle
from testudo_deploy.contract.contract import Command, PolicyContractError, TestVector
from testudo_deploy.contract.rules import check_contract, check_robot, graph_inputs, graph_outputs, read_contract
from testudo_deploy.control.control_loop import ControlLoop
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading, WireError
from testudo_hardware.spec import load_robot

DRONE, GROUND = load_robot("crazyflie_2x"), load_robot("gritsbot_x")
LOWER = ("attitude_thrust", "motor_thrusts")


def command_of(kind, spec=DRONE, share=1.0):
    form = FORMS[kind]
    limits = tuple((share * low, share * high) for low, high in form.bounds(spec))
    return Command(kind, ", ".join(form.units), max(high for _, high in limits), limits)


def zeros(shapes):
    """Return arrays of zeros by name, as nested lists with a batch of one and two neighbours."""
    sizes = {name: (1, *(2 if isinstance(axis, str) else axis for axis in shape)) for name, shape in shapes.items()}
    return {name: np.zeros(size).tolist() for name, size in sizes.items()}


def contract_of(kind, spec=DRONE, **options):
    contract = draft_contract(spec).replace(command=command_of(kind, **options))
    vector = TestVector(zeros(graph_inputs(contract)), zeros(graph_outputs(contract)))
    return contract.replace(test_vector=vector)


@pytest.mark.parametrize("kind", LOWER)
def test_a_lower_type_has_four_numbers_and_limits_with_units(kind):
    contract = contract_of(kind)
    assert graph_outputs(contract)["command"] == (4,)
    check_contract(contract, "here")
    check_robot(contract, DRONE, "here")
    again = read_contract(contract.to_json())
    assert again.command == contract.command


def test_files_of_velocities_are_as_they_were():
    """Software from before these types reads them: no key is new."""
    values = json.loads(draft_contract(DRONE).to_json())
    assert set(values["command"]) == {"type", "unit", "limit"}
    assert values["version"] == "testudo/contract/1"


def test_a_type_that_nobody_knows_is_refused_by_name():
    contract = contract_of("motor_thrusts")
    contract = contract.replace(command=Command("wing_beats", "Hz", 1.0))
    with pytest.raises(PolicyContractError, match=r"command\.type: found 'wing_beats', expected one of control_point"):
        check_contract(contract, "here")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"unit": "m/s"}, r"command\.unit: found 'm/s', expected 'rad, rad, rad, N'"),
        ({"limits": ()}, r"command\.limits: found 0 for attitude_thrust, expected 4"),
        ({"limits": ((0.1, -0.1), (0, 1), (0, 1), (0, 1))}, r"of roll: found \(0\.1, -0\.1\), expected low below"),
        ({"limits": ((0.1,), (0, 1), (0, 1), (0, 1))}, r"limits of roll"),
    ],
)
def test_units_and_limits_have_to_fit_the_type(change, text):
    contract = contract_of("attitude_thrust")
    command = Command(**{**vars(contract.command), **change})
    with pytest.raises(PolicyContractError, match=text):
        check_contract(contract.replace(command=command), "here")


@pytest.mark.parametrize("kind", LOWER)
def test_a_vehicle_refuses_more_than_it_takes_with_both_values(kind):
    contract = contract_of(kind, share=1.5)
    most = contract.command.limits[0][1]
    with pytest.raises(
        PolicyContractError, match=rf"found .* to {most:g} \w+, crazyflie_2x takes .* to {most / 1.5:g}"
    ):
        check_robot(contract, DRONE, "here")


@pytest.mark.parametrize("kind", LOWER)
def test_a_robot_on_the_ground_takes_velocities_only(kind):
    command = command_of(kind)
    with pytest.raises(
        PolicyContractError, match=rf"found '{kind}', expected 'control_point_velocity_world': gritsbot_x"
    ):
        check_vehicle(kind, command.limits, GROUND, "here")


@pytest.mark.parametrize("kind", LOWER)
def test_link_and_shield_refuse_it_by_robot_and_both_values(tmp_path, kind):
    fleet = make_tiny_fleet(tmp_path, 2, "crazyflie_2x")
    contract = contract_of(kind)
    with pytest.raises(
        CommandTypeError,
        match=rf"robots\.r0\.link: found command\.type '{kind}' in the policy, link "
        "'testudo' carries control_point_velocity_world",
    ):
        check_commands(fleet, contract)
    check_commands(fleet, draft_contract(DRONE))


@pytest.mark.parametrize("kind", LOWER)
def test_no_control_loop_is_made_for_what_the_shield_does_not_check(kind):
    class Artefact:
        contract = contract_of(kind)

    with pytest.raises(CommandTypeError, match=rf"robots\.r0: found command\.type '{kind}' in the policy, the shield"):
        ControlLoop(Artefact(), DRONE, robot="r0", peers=(), goal_world=(0.0, 0.0, 1.0), epoch="a")


@pytest.mark.parametrize("link", ["testudo", "crazyswarm2"])
def test_a_wire_refuses_a_command_of_another_type(link):
    wire = CommandWire("r0", DRONE, load_link(link))
    message = plain.velocity_world() if link == "crazyswarm2" else plain.twist_stamped()
    with pytest.raises(WireError, match="found a command of 4 numbers, expected 3: the wire carries control_point"):
        wire.encode(message, CommandReading(0.0, (0.0, 0.0, 0.0, 0.3)), PlanarTransform((0.0, 0.0, 1.0), 0.0))
