"""Reads and checks the contract of a policy file: version, keys, types, hash, consistency, and the robot."""

import json
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from testudo_deploy.contract.command_types import FORMS, check_vehicle
from testudo_deploy.contract.contract import (
    COMMAND_TYPE,
    FAMILY,
    HOLD_RULE,
    NEIGHBOUR_MESSAGE,
    NEIGHBOURS,
    VELOCITY_YAW_RATE,
    VERSION,
    WAYPOINT,
    Command,
    Contract,
    PolicyContractError,
    robot_signals,
)
from testudo_deploy.shield.arena import check_obstacle
from testudo_deploy.shield.projection_margins import SHIELD_VERSION, residual_error_m
from testudo_deploy.shield.residual_margin import RESIDUAL
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec, parse_robot
from testudo_hardware.strict_files import is_table, read_as

HIDDEN, HIDDEN_NEXT, COMMAND, MESSAGE = "hidden", "hidden_next", "command", "message"
MOST_NUMBERS = 32
"""Largest learned message, which is sent with every announcement."""
_STEADY = 0.25  # most of the distance that a tracking law may cover in one control period
TASK_SIGNALS = ("goal_world",)  # task signals that a fleet file provides without a task node


def graph_inputs(contract: Contract) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the graph's inputs by name, without the batch axis."""
    shapes = {signal.name: signal.shape for signal in contract.signals}
    return shapes | ({HIDDEN: (contract.hidden_size,)} if contract.hidden_size else {})


def graph_outputs(contract: Contract) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the graph's outputs by name, without the batch axis."""
    form = FORMS[contract.command.type]
    size = len(form.channels) if form.table else contract.dimension
    shapes: dict[str, tuple[int | str, ...]] = {COMMAND: (size,)}
    if contract.command.message_size:
        shapes[MESSAGE] = (contract.command.message_size,)
    return shapes | ({HIDDEN_NEXT: (contract.hidden_size,)} if contract.hidden_size else {})


def check_contract(contract: Contract, where: str) -> None:
    """Check that the fields agree with each other and with this software.

    Raises:
        PolicyContractError: naming the field, what was found and what is expected.
    """
    try:
        spec = parse_robot(contract.robot_spec, f"{where}.robot_spec")
    except TestudoError as error:
        raise PolicyContractError(str(error)) from error
    for name, found, expected in (
        ("robot", contract.robot, spec.name),
        ("robot_sha256", contract.robot_sha256, spec.sha256),
        ("dimension", contract.dimension, spec.dimension),
        ("control_period_s", contract.control_period_s, spec.control_period_s),
        ("dead_man_s", contract.dead_man_s, spec.dead_man_s),
        ("hold_rule", contract.hold_rule, HOLD_RULE),
    ):
        if found != expected:
            raise PolicyContractError(
                f"{where}.{name}: found {found!r}, expected {expected!r}; export the policy again"
            )
    _check_command(contract, spec, where)
    _check_ranges(contract, spec, where)
    _check_signals(contract, spec, where)
    _check_test_vector(contract, where)


def check_robot(
    contract: Contract,
    robot: RobotSpec,
    where: str,
    task_signals: Collection[str] | None = TASK_SIGNALS,
) -> None:
    """Check that the policy is for this robot, and that every signal that it needs is available.

    ``task_signals`` are those available besides the robot's own; None: the task node of the station sends any.

    Raises:
        PolicyContractError: naming the field and both values; where the hash differs, the quantity.
    """
    advice = "export the policy for this robot, or start it on the robot of its contract"
    for name, found, here in (
        ("robot", contract.robot, robot.name),
        ("control_period_s", contract.control_period_s, robot.control_period_s),
        ("dead_man_s", contract.dead_man_s, robot.dead_man_s),
    ):
        if found != here:
            raise PolicyContractError(f"{where}.{name}: found {found!r}, this robot has {here!r}; {advice}")
    if contract.robot_sha256 != robot.sha256:
        path, found, here = _first_difference(contract.robot_spec, robot.to_dict())
        raise PolicyContractError(
            f"{where}.robot_sha256: found {contract.robot_sha256[:12]}, this robot has "
            f"{robot.sha256[:12]}; {path} differs: found {found!r}, this robot has {here!r}; {advice}"
        )
    check_vehicle(contract.command.type, contract.command.limits, robot, where)
    if task_signals is None:
        return
    known = [*(signal.name for signal in robot_signals(robot, contract.command.message_size)), *task_signals]
    for index, signal in enumerate(contract.signals):
        if signal.name not in known:
            raise PolicyContractError(
                f"{where}.signals[{index}].name: found {signal.name!r}, which is not available on this "
                f"robot; known are {', '.join(known)}; the policy of {contract.scenario!r} needs it from a task "
                "node: write its fleet file, which has `task`, with `testudo export`"
            )


def _check_command(contract: Contract, spec: RobotSpec, where: str) -> None:
    command = contract.command
    form = FORMS.get(command.type)
    if form is None:
        raise PolicyContractError(
            f"{where}.command.type: found {command.type!r}, expected one of {', '.join(FORMS)}; update "
            "this software, or export the policy again"
        )
    if form.table and spec.kind != VELOCITY_POINT:
        raise PolicyContractError(
            f"{where}.command.type: found {command.type!r} for a {spec.kind}, expected {COMMAND_TYPE!r}"
        )
    if command.unit != form.unit:
        raise PolicyContractError(
            f"{where}.command.unit: found {command.unit!r}, expected {form.unit!r}; export the policy again"
        )
    if len(command.limits) != form.limited:
        raise PolicyContractError(
            f"{where}.command.limits: found {len(command.limits)} for {command.type}, expected "
            f"{form.limited}; export the policy again"
        )
    for channel, limits in zip(form.limited_channels, command.limits, strict=True):
        if len(limits) != 2 or not limits[0] < limits[1]:
            raise PolicyContractError(f"{where}.command.limits of {channel}: found {limits}, expected low below high")
    if command.type == VELOCITY_YAW_RATE and command.limits[0][0] != -command.limits[0][1]:
        raise PolicyContractError(
            f"{where}.command.limits of {form.channels[-1]}: found {command.limits[0]}, expected symmetric limits"
        )
    if not 0 <= command.message_size <= MOST_NUMBERS:
        raise PolicyContractError(
            f"{where}.command.message_size: found {command.message_size}, expected 0 to {MOST_NUMBERS}; export the "
            "policy again"
        )
    _check_gain(command, spec, where)


def _check_gain(command: Command, spec: RobotSpec, where: str) -> None:
    """Check the gain of the tracking law, which only a way-point has; a larger one would overshoot."""
    most, found = _STEADY / spec.control_period_s, command.gain_per_s
    good, expected = found == 0, "none"
    if command.type == WAYPOINT:
        good, expected = 0 < found <= most, f"above 0, at most {most:g} 1/s"
    if not good:
        raise PolicyContractError(
            f"{where}.command.gain_per_s: found {found:g} for {command.type}, expected {expected}; export the policy "
            "again"
        )


def _first_difference(policy: Any, robot: Any, path: str = "") -> tuple[str, Any, Any]:
    if is_table(policy) and is_table(robot):
        keys = [*robot, *(key for key in policy if key not in robot)]
        # numbers before texts about their sources
        for key in sorted(keys, key=lambda key: key in ("description", "source")):
            if key not in policy or key not in robot or policy[key] != robot[key]:
                return _first_difference(policy.get(key), robot.get(key), f"{path}.{key}" if path else key)
    return path, policy, robot


def _check_ranges(contract: Contract, spec: RobotSpec, where: str) -> None:
    shield = contract.shield
    terms = sum(term.value_m for term in shield.terms)
    for name, holds, expected in (
        ("hidden_size", contract.hidden_size >= 0, "0 or more"),
        ("decision_ticks", contract.decision_ticks >= 1, "1 or more"),
        ("team_size", contract.team_size >= 1, "1 or more"),
        ("command.limit", contract.command.limit > 0, "above 0"),
        ("shield.hold_s", shield.hold_s >= spec.hold_s - 1e-9, f"at least {spec.hold_s:.6g}"),
        ("shield.height_ratio", shield.height_ratio >= spec.height_ratio - 1e-9, f"at least {spec.height_ratio:.6g}"),
        ("shield.coast_s", shield.coast_s >= spec.coast_s - 1e-9, f"at least {spec.coast_s:.6g}"),
        ("shield.separation_m", abs(shield.separation_m - terms) <= 1e-9, f"the sum of its terms, {terms:.9g}"),
    ):
        if not holds:
            raise PolicyContractError(f"{where}.{name}: found {attrgetter(name)(contract)!r}, expected {expected}")
    # the part of the peers is checked with the fleet
    residual = sum(term.value_m for term in shield.terms if term.name == RESIDUAL)
    least = shield.direction_factor * residual_error_m(spec)
    if residual < least - 1e-9:
        raise PolicyContractError(
            f"{where}.shield.terms: found {residual:.6g} m for {RESIDUAL!r}, expected at least {least:.6g} m by "
            "[motion_noise] of robot_spec; export the policy again"
        )
    if contract.arena is not None:
        low, high = contract.arena.low_world, contract.arena.high_world
        if len(low) != spec.dimension or len(high) != spec.dimension:
            raise PolicyContractError(f"{where}.arena: found {low} to {high}, expected {spec.dimension} numbers each")
        if not all(below < above for below, above in zip(low, high, strict=True)):
            raise PolicyContractError(f"{where}.arena: found {low} to {high}, expected low below high")
        for index, obstacle in enumerate(contract.arena.obstacles):
            check_obstacle(obstacle, spec.dimension, f"{where}.arena.obstacles[{index}]", PolicyContractError)


def _check_signals(contract: Contract, spec: RobotSpec, where: str) -> None:
    own = {signal.name: signal for signal in robot_signals(spec, contract.command.message_size)}
    names = [signal.name for signal in contract.signals]
    if (NEIGHBOUR_MESSAGE in names) != (NEIGHBOUR_MESSAGE in own):
        size = contract.command.message_size
        raise PolicyContractError(
            f"{where}.signals: found {'a' if NEIGHBOUR_MESSAGE in names else 'no'} signal {NEIGHBOUR_MESSAGE}, and "
            f"command.message_size {size}; expected the signal if and only if the policy says a message; export the "
            "policy again"
        )
    for index, signal in enumerate(contract.signals):
        field = f"{where}.signals[{index}]"
        if signal.name in names[:index] or signal.name in (HIDDEN, ""):
            raise PolicyContractError(f"{field}.name: found {signal.name!r}, expected a unique name")
        for part in ("shape", "unit", "frame"):
            found, expected = getattr(signal, part), getattr(own.get(signal.name), part, None)
            if expected is not None and found != expected:
                raise PolicyContractError(
                    f"{field}.{part} of {signal.name}: found {found!r}, expected {expected!r}; export the policy again"
                )
        lengths = signal.shape[1:] if signal.shape[:1] == (NEIGHBOURS,) else signal.shape
        if any(isinstance(axis, str) or axis < 1 for axis in lengths):
            raise PolicyContractError(
                f"{field}.shape of {signal.name}: found {signal.shape}, expected lengths above 0, "
                f"or {NEIGHBOURS!r} as the first"
            )
    has_slots = any(NEIGHBOURS in signal.shape for signal in contract.signals)
    if has_slots and "neighbour_valid" not in names:
        raise PolicyContractError(
            f"{where}.signals: neighbour_valid is missing: without it a robot without "
            "neighbours cannot run the policy; export the policy again"
        )


def _check_test_vector(contract: Contract, where: str) -> None:
    for side, shapes in (("inputs", graph_inputs(contract)), ("outputs", graph_outputs(contract))):
        values = getattr(contract.test_vector, side)
        field = f"{where}.test_vector.{side}"
        if set(values) != set(shapes):
            raise PolicyContractError(
                f"{field}: found {', '.join(sorted(values)) or 'none'}, expected "
                f"{', '.join(sorted(shapes))}; export the policy again"
            )
        sizes: dict[str, int] = {}
        for name, shape in shapes.items():
            found = _array_shape(values[name], f"{field}.{name}")
            expected = ("batch", *shape)
            if len(found) != len(expected) or any(
                sizes.setdefault(axis, length) != length if isinstance(axis, str) else axis != length
                for axis, length in zip(expected, found, strict=True)
            ):
                raise PolicyContractError(f"{field}.{name}: found shape {found}, expected {expected}")


def _array_shape(values: Any, where: str) -> tuple[int, ...]:
    try:
        return np.asarray(values, np.float32).shape
    except (TypeError, ValueError) as error:
        raise PolicyContractError(f"{where}: not an array of numbers: {error}") from error


def read_contract(text: str, where: str = "contract") -> Contract:
    """Read the output of `Contract.to_json`; ``where`` names the file in errors.

    Raises:
        PolicyContractError: not JSON, a newer version, an unknown or missing key, a wrong type, a number that is not
            finite, or fields that contradict each other.
    """
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyContractError(f"{where}: not JSON: {error}; export the policy again") from error
    if not is_table(values):
        raise PolicyContractError(f"{where}: found {type(values).__name__}, expected an object")
    _check_version(values, where)
    stored_hash = values.get("contract_hash")
    rest = {key: value for key, value in values.items() if key != "contract_hash"}
    contract: Contract = read_as(Contract, rest, where, PolicyContractError)
    if stored_hash != contract.contract_hash:
        raise PolicyContractError(
            f"{where}.contract_hash: found {stored_hash!r}, expected "
            f"{contract.contract_hash!r}: shield, timing or robot were edited; export again"
        )
    check_contract(contract, where)
    return contract


def _check_version(values: Mapping[str, Any], where: str) -> None:
    """Refuse another version first, since its keys may differ."""
    found = values.get("version")
    if found != VERSION:
        number = found.removeprefix(FAMILY) if isinstance(found, str) else ""
        newer = number.isdecimal() and int(number) > int(VERSION.removeprefix(FAMILY))
        raise PolicyContractError(
            f"{where}.version: found {found!r}, expected {VERSION!r}; "
            + ("update this software" if newer else "export the policy again")
        )
    shield = values.get("shield")
    version = shield.get("version") if is_table(shield) else None
    if version != SHIELD_VERSION:
        raise PolicyContractError(
            f"{where}.shield.version: found {version!r}, expected {SHIELD_VERSION}: the policy was "
            "trained with another shield; export it again with this version"
        )
