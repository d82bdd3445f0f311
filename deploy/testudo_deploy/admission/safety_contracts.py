"""Each robot's obligation as data: what it guarantees to its peers, and what it assumes of them.

The shield of each robot is proven for itself, under assumptions about the others (assume-guarantee contracts:
shield.md, "Contract"). `obligation_rules.check_fleet` sees whether the obligations of a fleet fit together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testudo_deploy.contract.contract import Contract
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.robot_links import default_link
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, read_as

PROJECTION, GATE, RESERVATIONS = "projection", "gate", "reservations"
DEPLOYED_LAYERS = (PROJECTION, GATE, RESERVATIONS)
"""What `control_loop.py` runs."""
SAFETY_CONTRACTS_FILE = "obligations.json"
"""Of a run folder."""
FLEET_FRAME = "world"
"""The one frame that all poses of a fleet are in."""

Value = float | int | str | bool | None


class SafetyContractError(TestudoError):
    """The obligations of a fleet do not fit together, or one of them cannot be read or made."""


@dataclass(frozen=True)
class Guarantees:
    """What a robot promises to keep; lengths m, times s, speeds m/s. None: the layer for it is not there."""

    shield_version: int
    layers: str
    """Of the shield, joined by ` + `."""
    frame: str
    """Of the announced points."""
    arena: str
    """Walls and obstacles that the shield knows, as JSON; `null` without walls."""
    dead_man_s: float
    """The driver brakes after this time without a command (T_dm)."""
    control_period_s: float
    """A command and a message leave once in it (T)."""
    hold_s: float
    """The longest time that one command acts, as the margins count it (T_hold)."""
    gap_share: float
    """Twice the share of a gap that this robot uses in a hold (gamma)."""
    separation_m: float
    """Distance of control points that is kept (D)."""
    direction_factor: float
    """What a metre of uncertainty costs in separation (kappa)."""
    body_radius_m: float
    """What is kept free of others at its own height: the body, or the wash of a drone."""
    look_ahead_m: float
    """The control point is so far ahead of the body's centre."""
    localisation_m: float
    """Error of the control point that the errors of position and yaw make."""
    speed_m_s: float
    """Highest speed of the control point."""
    acceleration_m_s2: float
    """Brakes at least, and changes its velocity at most, by this."""
    velocity_lag_s: float
    """With which the announced stopping points are computed."""
    velocity_lag_low_s: float
    velocity_lag_high_s: float
    command_delay_s: float
    command_delay_low_s: float
    command_delay_high_s: float
    lane_reach_m: float | None
    """The body stays so near to the middle of the lane that the robot owns: radius, lane and tube error."""
    clearance_m: float | None
    """Least distance of the middles of two robots' lanes."""
    silence_s: float | None
    """A peer that said nothing for so long counts as silent."""
    contract_hash: str
    """Of the contract that stands in every message; others are refused."""
    height_ratio: float = field(default=1.0, metadata=OPTIONAL)
    """Heights between robots count 1/this: of layer 1's rows, tubes, lanes and starts."""
    moves_on_s: float = field(default=0.0, metadata=OPTIONAL)
    """For so long the vehicle moves on when no set-point reaches it: until it brakes, or else until it has fallen."""
    reach_s: float = field(default=0.0, metadata=OPTIONAL)
    """For so long a command moves it on, as the margins count it."""


@dataclass(frozen=True)
class Assumption:
    """What a robot relies on: the guarantee ``name`` of every peer is in ``relation`` to ``value``."""

    name: str
    relation: str
    """`==` or `<=`."""
    value: Value


@dataclass(frozen=True)
class Obligation:
    """One robot's part of the fleet's safety."""

    robot: str
    """Its name in the fleet."""
    type: str
    trusted: bool
    """False for a robot, person or thing that keeps no rule but its highest speed."""
    guarantees: Guarantees
    assumes: tuple[Assumption, ...]
    """Of each trusted peer."""
    assumes_untrusted: tuple[Assumption, ...]
    """Of each untrusted one."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the layers of the shield that this robot runs."""
        return tuple(self.guarantees.layers.split(" + "))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        listed = ("assumes", "assumes_untrusted")
        return asdict(self) | {name: [asdict(entry) for entry in getattr(self, name)] for name in listed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "obligation") -> Obligation:
        """Read what `to_dict` wrote.

        Raises:
            SafetyContractError: an unknown or missing key, a wrong type, or a number that is not finite.
        """
        return read_as(cls, values, where, SafetyContractError)


def obligation(
    robot: str,
    spec: RobotSpec,
    contract: Contract,
    *,
    space: StopTubeParameters | None = None,
    trusted: bool = True,
    frame: str = FLEET_FRAME,
    brake_confirmed: bool = True,
) -> Obligation:
    """Return the obligation of a robot that runs the policy file with ``contract``.

    Args:
        robot: its name in the fleet.
        spec: the robot as described by its file; it promises what stands there, not what the policy was made for.
        contract: of the policy file.
        space: margins of layers 2 and 3; None where only layer 1 runs.
        trusted: whether the others may rely on it.
        frame: the frame of its poses.
        brake_confirmed: whether a drone whose file says that it brakes by itself in silence is known to do so.

    Raises:
        SafetyContractError: the shield's margins lack a term that an assumption is made of.
    """
    shield = contract.shield
    delay, lag = spec.quantities["dynamics.command_delay"], spec.quantities["dynamics.velocity_lag"]
    made = Guarantees(
        shield_version=shield.version,
        layers=" + ".join((PROJECTION,) if space is None else (PROJECTION, GATE, RESERVATIONS)),
        frame=frame,
        arena=json.dumps(contract.arena and asdict(contract.arena), sort_keys=True),
        dead_man_s=spec.dead_man_s,
        control_period_s=spec.control_period_s,
        hold_s=shield.hold_s,
        gap_share=shield.gap_share,
        separation_m=shield.separation_m,
        direction_factor=shield.direction_factor,
        body_radius_m=spec.keep_radius_m,
        look_ahead_m=_look_ahead(spec),
        localisation_m=spec.position_error_m + _look_ahead(spec) * spec.yaw_error_rad,
        speed_m_s=spec.control_point_speed_m_s,
        acceleration_m_s2=spec.acceleration_limit_m_s2,
        velocity_lag_s=lag.value,
        velocity_lag_low_s=lag.low,
        velocity_lag_high_s=lag.high,
        command_delay_s=delay.value,
        command_delay_low_s=delay.low,
        command_delay_high_s=delay.high,
        lane_reach_m=space and spec.keep_radius_m + space.lane_m + space.tube_error_m,
        clearance_m=space and space.clearance_m,
        silence_s=space and space.silence_s,
        contract_hash=contract.contract_hash,
        height_ratio=shield.height_ratio,
        moves_on_s=_moves_on_s(spec, brake_confirmed),
        reach_s=shield.reach_s,
    )
    return Obligation(robot, spec.name, trusted, made, _assumptions(made, shield), _of_untrusted(made, space))


def fleet_obligations(
    fleet: Fleet, contract: Contract, *, layers: Iterable[str] = DEPLOYED_LAYERS
) -> tuple[Obligation, ...]:
    """Return the obligations of all robots of a fleet that run one policy file.

    Args:
        fleet: the robots.
        contract: of their policy file.
        layers: of the shield that runs; with the gate, the margins are those of `stop_tube_parameters`.
    """
    return tuple(
        obligation(
            robot.name,
            robot.spec,
            contract,
            space=stop_tube_parameters_of(robot.spec, layers),
            trusted=not robot.untrusted,
            brake_confirmed=robot.link.onboard_brake or robot.link.profile == default_link().profile,
        )
        for robot in fleet.robots
    )


def _moves_on_s(spec: RobotSpec, brake_confirmed: bool) -> float:
    """Return for how long the vehicle moves on when no set-point reaches it: a brake counts if somebody has seen it."""
    key = "silence.onboard_brake"
    if spec.silence and not brake_confirmed:
        none = replace(spec.silence[key], value=0.0, low=0.0, high=0.0)
        spec = replace(spec, silence={**spec.silence, key: none})
    return spec.hold_s - spec.control_period_s + spec.coast_s


def stop_tube_parameters_of(spec: RobotSpec, layers: Iterable[str] = DEPLOYED_LAYERS) -> StopTubeParameters | None:
    """Return the margins of layers 2 and 3 as the control loop makes them; None without the gate."""
    return stop_tube_parameters(spec) if GATE in layers else None


def save_safety_contracts(folder: Path, obligations: Iterable[Obligation]) -> None:
    """Write the obligations of a fleet into a run folder, as `SAFETY_CONTRACTS_FILE`.

    Raises:
        SafetyContractError: the disk refuses.
    """
    try:
        text = json.dumps([one.to_dict() for one in obligations], indent=2)
        (folder / SAFETY_CONTRACTS_FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise SafetyContractError(
            f"{folder / SAFETY_CONTRACTS_FILE}: cannot be written: {error.strerror or error}"
        ) from error


def load_safety_contracts(folder: Path) -> tuple[Obligation, ...]:
    """Read what `save_safety_contracts` wrote.

    Raises:
        SafetyContractError: unreadable, not JSON, or not obligations.
    """
    file = folder / SAFETY_CONTRACTS_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SafetyContractError(f"{file}: cannot be read: {error}") from error
    if not isinstance(values, list):
        raise SafetyContractError(f"{file}: found {type(values).__name__}, expected a list of obligations")
    return tuple(Obligation.from_dict(entry, f"{file}: [{index}]") for index, entry in enumerate(values))


def _assumptions(own: Guarantees, shield: ProjectionParameters) -> tuple[Assumption, ...]:
    """Return what the margins were computed with; of a sum over a pair, what the own part leaves."""
    bodies, ahead, located = (_term(shield, name) for name in ("bodies", "look-ahead", "localisation"))
    return (
        Assumption("shield_version", "==", own.shield_version),
        Assumption("layers", "==", own.layers),
        Assumption("frame", "==", own.frame),
        Assumption("arena", "==", own.arena),
        Assumption("dead_man_s", "==", own.dead_man_s),
        Assumption("control_period_s", "==", own.control_period_s),
        Assumption("separation_m", "==", own.separation_m),
        Assumption("height_ratio", "==", own.height_ratio),
        Assumption("clearance_m", "==", own.clearance_m),
        Assumption("body_radius_m", "<=", bodies - own.body_radius_m),
        Assumption("look_ahead_m", "<=", ahead - own.look_ahead_m),
        Assumption("localisation_m", "<=", located / shield.direction_factor - own.localisation_m),
        Assumption("speed_m_s", "<=", shield.peer_speed_m_s),
        Assumption("acceleration_m_s2", "<=", shield.peer_acceleration_m_s2),
        Assumption("velocity_lag_s", "<=", shield.peer_lag_s),
        # the margins "lag" and "model" count with the own intervals for the peer's
        Assumption("velocity_lag_high_s", "<=", own.velocity_lag_high_s),
        Assumption("command_delay_s", "==", own.command_delay_s),
        Assumption("command_delay_high_s", "<=", own.command_delay_high_s),
        Assumption("contract_hash", "==", own.contract_hash),
    )


def _of_untrusted(own: Guarantees, space: StopTubeParameters | None) -> tuple[Assumption, ...]:
    if space is None:
        return ()
    return (
        Assumption("body_radius_m", "<=", own.body_radius_m),
        Assumption("speed_m_s", "<=", space.untrusted_speed_m_s),
    )


def _term(shield: ProjectionParameters, name: str) -> float:
    for term in shield.terms:
        if term.name == name:
            return term.value_m
    raise SafetyContractError(
        f"contract.shield.terms: found no term {name!r}, expected one: what is assumed of peers "
        "cannot be told without it; export the policy again"
    )


def _look_ahead(spec: RobotSpec) -> float:
    return spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
