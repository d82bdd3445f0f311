"""The margins of layer 1: each term with name, unit and source, and their sums.

The pair rule is n . q' >= -gap_share * gap / (2 * hold), where the gap is what the distance leaves beyond
these margins and the reach of the peer since its message. What a peer does within the hold that follows is
not part of the reach: layers 2 and 3 and the distance between these margins and contact cover that.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from testudo_deploy.shield.margin_terms import (
    MarginTerm,
    coast_drift_m,
    stopping_way_m,
    velocity_error_m,
)
from testudo_deploy.shield.residual_margin import (
    RESIDUAL,
    RESIDUAL_HELD,
    fastest_m_s,
    longest_ahead_s,
    residual_drift_m,
    residual_way_m,
)
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion.motion_model import turn_slip_m_s
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec

SHIELD_VERSION = 3
GAP_SHARE = 0.9  # the pair lemma holds for it with asynchronous ticks of up to a third of T_hold


@dataclass(frozen=True)
class ProjectionParameters:
    """Parameters of layer 1 beyond the motion model; lengths m, times s. Part of the contract."""

    version: int
    gap_share: float  # share of the gap that a pair may use per hold (gamma)
    hold_s: float  # longest time that one command can act (T_hold)
    direction_factor: float  # factor of position errors that includes the uncertain direction (kappa)
    separation_m: float
    """Distance of control points that is kept from a peer at rest and of age zero: the sum of `terms`."""
    wall_m: float  # distance of the control point that is kept from a wall
    peer_speed_m_s: float  # highest speed of a peer's control point
    peer_acceleration_m_s2: float  # highest acceleration of a peer
    peer_lag_s: float  # velocity lag of a peer
    peer_period_s: float  # control tick of a peer: during it the peer moves as announced
    neighbour_rows: int  # how many nearest neighbours get a row (K); the rest are covered by a cap on the speed
    terms: tuple[MarginTerm, ...]
    height_ratio: float = 1.0
    """Heights between robots count 1/this (`geometry.z_scaled`); so do all distances to peers above."""
    coast_s: float = 0.0  # time for which a robot that lost its link moves without a brake after the hold

    @property
    def reach_s(self) -> float:
        """Return the longest time for which a command can move a robot; gaps are shared over this time."""
        return self.hold_s + self.coast_s

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"terms": [asdict(term) for term in self.terms]}


def projection_parameters(
    own: RobotSpec, peer: RobotSpec | None = None, *, gap_share: float = GAP_SHARE, neighbour_rows: int = 8
) -> ProjectionParameters:
    """Return the parameters of a robot among peers of one kind (its own by default)."""
    peer = peer or own
    hold = max(own.hold_s, peer.hold_s)
    bodies = own.keep_radius_m + peer.keep_radius_m
    ahead = _look_ahead(own) + _look_ahead(peer)
    lag = _lag_margin(own, peer, bodies + ahead)
    arc = 2 * hold / gap_share * _held_arc(own)
    slip = 2 * hold / gap_share * turn_slip_m_s(own)
    located = _localisation(own) + _localisation(peer)
    rolled = _velocity_error(own) + _velocity_error(peer)
    model = _model_error(own) + _model_error(peer)
    moved = residual_error_m(own) + residual_error_m(peer)
    reach = hold + max(own.coast_s, peer.coast_s)
    drift = (_drift(own, reach) + _drift(peer, reach)) / gap_share
    kappa = _direction_factor(
        bodies + ahead + lag + arc + slip + drift,
        located + rolled + model + moved,
        2 * hold * own.control_point_speed_m_s / gap_share,
    )
    located, rolled, model, moved = kappa * located, kappa * rolled, kappa * model, kappa * moved
    terms = (
        MarginTerm("bodies", bodies, "sum of the radii that are kept free: bodies, or the wash of drones"),
        MarginTerm("look-ahead", ahead, "control points ahead of the axles"),
        MarginTerm("lag", lag, "the body trails its stopping point while the pair turns"),
        MarginTerm("localisation", located, "kappa * (position error + look-ahead * yaw error), both robots"),
        MarginTerm("model", model, "kappa * stopping-point error over the intervals of lag, delay and scale"),
        MarginTerm("held arc", arc, "a held command bends: control speed * turn rate * tick / 2, over the share"),
    )
    if rolled:
        terms += (MarginTerm("velocity", rolled, "kappa * stopping-point error by the measured velocity, both robots"),)
    if own.coast_s + peer.coast_s > 0:
        coasted = coast_drift_m(own) + coast_drift_m(peer)
        terms += (MarginTerm("silence", coasted, "error of the level and of the speed while coasting, both robots"),)
    if slip:
        terms += (MarginTerm("turn slip", slip, "forward speed lost in turns, over the share"),)
    if moved:
        source = "kappa * bound of the displacement by motion_noise from a pose until rest, both robots"
        held = "bound of the displacement by motion_noise while a command acts, over the share, both robots"
        terms += (MarginTerm(RESIDUAL, moved, source), MarginTerm(RESIDUAL_HELD, drift, held))
    return ProjectionParameters(
        SHIELD_VERSION,
        gap_share,
        hold,
        kappa,
        sum(term.value_m for term in terms),
        _wall_margin(own, hold, gap_share),
        fastest_m_s(peer),
        peer.acceleration_limit_m_s2,
        peer.velocity_lag_s,
        peer.control_period_s,
        neighbour_rows,
        terms,
        max(own.height_ratio, peer.height_ratio),
        max(own.coast_s, peer.coast_s),
    )


def _wall_margin(spec: RobotSpec, hold_s: float, gap_share: float) -> float:
    """Return the distance of the control point from walls and obstacles [m].

    Not less than what the stop-tube check keeps, plus the noise of two poses: otherwise layer 1 would let a robot slide
    towards an obstacle where layer 2 stops it. Training and robot read this one number.
    """
    projected = (
        spec.body_radius_m
        + _look_ahead(spec)
        + _localisation(spec)
        + _velocity_error(spec)
        + _model_error(spec)
        + hold_s / gap_share * (_held_arc(spec) + turn_slip_m_s(spec))
        + residual_error_m(spec)
        + _drift(spec, hold_s + spec.coast_s) / gap_share
    )
    space = stop_tube_parameters(spec)
    return max(projected, space.wall_m + space.noise_m)


def _direction_factor(certain_m: float, uncertain_m: float, use_m: float) -> float:
    """Return kappa = 1 + use / D, where D = certain + kappa * uncertain is the separation itself."""
    half = (certain_m + uncertain_m) / 2
    separation = half + math.sqrt(half**2 + uncertain_m * use_m)
    return 1 + use_m / separation


def _look_ahead(spec: RobotSpec) -> float:
    return spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0


def _lag_margin(own: RobotSpec, peer: RobotSpec, apart: float) -> float:
    """Return D' - apart for D' / (1 + (omega * lag)²) = apart, omega = closing speed / D'."""
    speed = own.control_point_speed_m_s + peer.control_point_speed_m_s
    lag = max(own.quantities["dynamics.velocity_lag"].high, peer.quantities["dynamics.velocity_lag"].high)
    separation = apart
    for _ in range(50):  # a contraction: separation = apart * (1 + (speed * lag / separation)²)
        separation = apart * (1 + (speed * lag / separation) ** 2)
    delay = speed * abs(own.command_delay_s - peer.command_delay_s)
    return separation - apart + delay


def control_point_error_m(spec: RobotSpec) -> float:
    """Return the error of a stopping point by the errors of position, yaw and velocity, and residual motion [m]."""
    return _localisation(spec) + _velocity_error(spec) + residual_error_m(spec)


def _localisation(spec: RobotSpec) -> float:
    return spec.position_error_m + _look_ahead(spec) * spec.yaw_error_rad


def _velocity_error(spec: RobotSpec) -> float:
    """Return how far a stopping point is off because the measured velocity is wrong [m]."""
    if not spec.velocity_error_m_s:
        return 0.0
    speed = spec.control_point_speed_m_s
    ahead_s = spec.pose_max_age_s + spec.command_delay_s
    return velocity_error_m(spec, ahead_s, _look_ahead(spec) + speed * ahead_s + stopping_way_m(spec, speed))


def residual_error_m(spec: RobotSpec) -> float:
    """Return how far the residual motion moves a control point from a pose until the robot rests [m]."""
    return residual_way_m(spec, longest_ahead_s(spec) + spec.control_period_s, _look_ahead(spec))


def _drift(spec: RobotSpec, reach_s: float) -> float:
    """Return how far the residual motion moves a control point while one command acts [m]."""
    return residual_drift_m(spec, reach_s, _look_ahead(spec))


def _model_error(spec: RobotSpec) -> float:
    """Return how far the stopping point is off at full speed, at the ends of the intervals."""
    ahead_s, quantities = spec.velocity_lag_s + spec.command_delay_s, spec.quantities
    speed = spec.control_point_speed_m_s
    along = speed * (
        quantities["dynamics.velocity_lag"].half_width
        + quantities["dynamics.command_delay"].half_width
        + quantities["dynamics.speed_scale"].half_width * ahead_s
    )
    if spec.kind == HOLONOMIC:  # it drives along its own axes: an error of their direction turns the whole path
        return along + speed * spec.yaw_error_rad * ahead_s
    if spec.kind != DIFFERENTIAL_DRIVE:
        return along
    turned = quantities["dynamics.turn_scale"].half_width * spec.turn_rate_limit_rad_s * ahead_s
    # neither commands nor announcements compensate the speed lost in turns
    lost = turn_slip_m_s(spec) * (ahead_s + spec.control_period_s)
    return along + spec.look_ahead_m * turned + lost


def _held_arc(spec: RobotSpec) -> float:
    """Return how much the direction of a held command costs in speed [m/s]."""
    if spec.kind != DIFFERENTIAL_DRIVE:
        return 0.0
    return spec.control_point_speed_m_s * spec.turn_rate_limit_rad_s * spec.control_period_s / 2
