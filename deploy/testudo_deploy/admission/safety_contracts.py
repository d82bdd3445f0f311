"""The safety contract of each robot as data: what it guarantees to its peers, and what it assumes of them.

The shield of each robot is proven alone, under assumptions about the others (assume-guarantee contracts: shield.md,
"Contract"). `safety_contract_rules.check_fleet` checks whether the contracts of a fleet fit together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testudo_deploy.contract.contract import Contract
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.robot_links import default_link
from testudo_deploy.shield.projection_margins import ProjectionParameters, control_point_error_m
from testudo_deploy.shield.residual_margin import RESIDUAL, fastest_m_s
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube_parameters, with_untrusted_speed
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, read_as

PROJECTION, GATE, RESERVATIONS = "projection", "gate", "reservations"
DEPLOYED_LAYERS = (PROJECTION, GATE, RESERVATIONS)  # layers of the shield that the control loop runs
SAFETY_CONTRACTS_FILE = "obligations.json"  # file in a run folder
FLEET_FRAME = "world"  # frame of all poses of a fleet

Value = float | int | str | bool | None


class SafetyContractError(TestudoError):
    """The safety contracts of a fleet do not fit together, or one cannot be read or made."""


@dataclass(frozen=True)
class Guarantees:
    """Guarantees of a robot; lengths m, times s, speeds m/s. None: the robot does not run that layer."""

    shield_version: int
    layers: str  # of the shield, joined by ` + `
    frame: str  # of the announced points
    arena: str  # walls and obstacles of the shield as JSON; `null` without walls
    dead_man_s: float  # time without a command after which the driver brakes (T_dm)
    control_period_s: float  # period of commands and messages (T)
    hold_s: float  # longest time for which one command acts in the margins (T_hold)
    gap_share: float  # twice the share of a gap that this robot uses in a hold (gamma)
    separation_m: float  # guaranteed distance of control points (D)
    direction_factor: float  # separation per metre of uncertainty (kappa)
    body_radius_m: float  # radius kept free at its own height: the body, or the downwash of a drone
    look_ahead_m: float  # distance of the control point ahead of the body's centre
    localisation_m: float  # error of the control point by the errors of position, yaw and velocity, and residual motion
    speed_m_s: float  # highest speed of the control point, with residual motion
    acceleration_m_s2: float  # least braking deceleration and largest acceleration
    velocity_lag_s: float  # for the announced stopping points
    velocity_lag_low_s: float
    velocity_lag_high_s: float
    command_delay_s: float
    command_delay_low_s: float
    command_delay_high_s: float
    lane_reach_m: float | None
    """Largest distance of the body from the centre line of its reserved segment: radius, segment and tube error."""
    clearance_m: float | None  # least distance of the centre lines of two robots' segments
    silence_s: float | None  # time without messages after which a peer counts as silent
    contract_hash: str  # contract hash in every message; messages with another one are refused
    height_ratio: float = field(default=1.0, metadata=OPTIONAL)
    """Divisor of heights between robots: in layer 1's rows, tubes, segments and starts."""
    moves_on_s: float = field(default=0.0, metadata=OPTIONAL)
    """Time of motion of a vehicle without set-points: until it brakes, or until it has fallen."""
    reach_s: float = field(default=0.0, metadata=OPTIONAL)  # time of motion under one command in the margins


@dataclass(frozen=True)
class Assumption:
    """An assumption of a robot: the guarantee ``name`` of every peer is in ``relation`` to ``value``."""

    name: str
    relation: str  # `==` or `<=`
    value: Value


@dataclass(frozen=True)
class Obligation:
    """The safety contract of one robot."""

    robot: str  # its name in the fleet
    type: str
    trusted: bool  # false for a robot, person or object that guarantees only its highest speed
    guarantees: Guarantees
    assumes: tuple[Assumption, ...]  # of each trusted peer
    assumes_untrusted: tuple[Assumption, ...]  # of each untrusted one

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
        """Read the output of `to_dict`.

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
    """Return the safety contract of a robot that runs the policy file with ``contract``.

    Args:
        robot: its name in the fleet.
        spec: of the robot file: the guarantees are those of the robot, not of the robot in training.
        contract: of the policy file.
        space: margins of layers 2 and 3; None if only layer 1 runs.
        trusted: whether peers may rely on it.
        frame: the frame of its poses.
        brake_confirmed: whether the onboard brake in its robot file is confirmed for this drone.

    Raises:
        SafetyContractError: the shield's margins lack a term that an assumption needs.
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
        localisation_m=control_point_error_m(spec),
        speed_m_s=fastest_m_s(spec),
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
    """Return the safety contracts of all robots of a fleet that run one policy file, for these layers of the shield."""

    def of(robot: FleetRobot) -> Obligation:
        space = with_untrusted_speed(stop_tube_parameters(robot.spec), fleet.untrusted_speed_m_s)
        found = obligation(
            robot.name,
            robot.spec,
            contract,
            space=space if GATE in layers else None,
            trusted=not robot.untrusted,
            brake_confirmed=robot.link.onboard_brake or robot.link.profile == default_link().profile,
        )
        fastest = max(found.guarantees.speed_m_s, robot.untrusted_speed_m_s)
        return replace(found, guarantees=replace(found.guarantees, speed_m_s=fastest))

    return tuple(map(of, fleet.robots))


def _moves_on_s(spec: RobotSpec, brake_confirmed: bool) -> float:
    """Return how long the vehicle moves without set-points; an onboard brake counts only if it is confirmed."""
    key = "silence.onboard_brake"
    if spec.silence and not brake_confirmed:
        none = replace(spec.silence[key], value=0.0, low=0.0, high=0.0)
        spec = replace(spec, silence={**spec.silence, key: none})
    return spec.hold_s - spec.control_period_s + spec.coast_s


def save_safety_contracts(folder: Path, obligations: Iterable[Obligation]) -> None:
    """Write the safety contracts of a fleet into `SAFETY_CONTRACTS_FILE` of a run folder.

    Raises:
        SafetyContractError: the file cannot be written.
    """
    try:
        text = json.dumps([one.to_dict() for one in obligations], indent=2)
        (folder / SAFETY_CONTRACTS_FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise SafetyContractError(
            f"{folder / SAFETY_CONTRACTS_FILE}: cannot be written: {error.strerror or error}"
        ) from error


def _assumptions(own: Guarantees, shield: ProjectionParameters) -> tuple[Assumption, ...]:
    """Return the assumptions of the margins; a sum over a pair less the own part."""
    bodies, ahead, located = (_term(shield, name) for name in ("bodies", "look-ahead", "localisation"))
    located += sum(term.value_m for term in shield.terms if term.name in ("velocity", RESIDUAL))
    equal = ("shield_version", "layers", "frame", "arena", "dead_man_s", "control_period_s", "separation_m")
    equal = (*equal, "height_ratio", "clearance_m")
    return (
        *(Assumption(name, "==", getattr(own, name)) for name in equal),
        Assumption("body_radius_m", "<=", bodies - own.body_radius_m),
        Assumption("look_ahead_m", "<=", ahead - own.look_ahead_m),
        Assumption("localisation_m", "<=", located / shield.direction_factor - own.localisation_m),
        Assumption("speed_m_s", "<=", shield.peer_speed_m_s),
        Assumption("acceleration_m_s2", "<=", shield.peer_acceleration_m_s2),
        Assumption("velocity_lag_s", "<=", shield.peer_lag_s),
        # the margins "lag" and "model" use the own intervals for the peer
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
        f"contract.shield.terms: found no term {name!r}, expected one: the assumptions about "
        "peers need it; export the policy again"
    )


def _look_ahead(spec: RobotSpec) -> float:
    return spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
