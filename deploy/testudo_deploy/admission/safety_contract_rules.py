"""Checks whether the safety contracts of a fleet together imply that no two robots touch.

Three kinds of rules: what each robot must guarantee, what each assumes of its peers against what they guarantee, and
what must hold for each pair. Every rule yields its violations; `RULES` lists all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, permutations
from typing import TypeGuard

from testudo_deploy.admission.safety_contracts import (
    GATE,
    PROJECTION,
    RESERVATIONS,
    Assumption,
    Guarantees,
    Obligation,
    SafetyContractError,
    Value,
)

NEEDED: dict[str, str] = {
    "shield_version": "==",
    "layers": "==",
    "frame": "==",
    "arena": "==",
    "dead_man_s": "==",
    "control_period_s": "==",
    "separation_m": "==",
    "height_ratio": "==",
    "clearance_m": "==",
    "body_radius_m": "<=",
    "look_ahead_m": "<=",
    "localisation_m": "<=",
    "speed_m_s": "<=",
    "acceleration_m_s2": "<=",
    "velocity_lag_s": "<=",
    "velocity_lag_high_s": "<=",
    "command_delay_s": "==",
    "command_delay_high_s": "<=",
    "contract_hash": "==",
}
"""Assumptions of every trusted robot about its peers, with their relations: the proof uses each of them."""
NEEDED_OF_UNTRUSTED = {"body_radius_m": "<=", "speed_m_s": "<="}
_LAYERS = (PROJECTION, GATE, RESERVATIONS)
_TOLERANCE = 1e-9
_UNITS = {"_m_s2": " m/s^2", "_m_s": " m/s", "_m": " m", "_s": " s"}
_LONG = 80


@dataclass(frozen=True)
class Violation:
    """One violation of a rule."""

    robot: str  # whose guarantee or assumption it is
    field: str
    found: Value
    expected: Value
    text: str  # one sentence: robot, field, found, expected


def check_fleet(obligations: Sequence[Obligation]) -> None:
    """Check that each assumption is guaranteed, and that the contracts together keep the robots apart.

    Raises:
        SafetyContractError: the fleet must not start. The text has the first violation, with robot, field and both
            values, and the number of the others.
    """
    violations = find_violations(obligations)
    if violations:
        rest = len(violations) - 1
        more = f" (and {rest} more violation{'s' if rest > 1 else ''})" if rest else ""
        raise SafetyContractError(f"the fleet is refused: {violations[0].text}{more}")


def find_violations(obligations: Sequence[Obligation]) -> tuple[Violation, ...]:
    """Return all violations, in the order of the rules."""
    return tuple(violation for rule in RULES for violation in rule(obligations))


def _names_differ(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    names = [member.robot for member in fleet]
    for name in sorted({name for name in names if names.count(name) > 1}):
        why = f"which occurs {names.count(name)} times in the fleet, expected once"
        yield Violation(name, "robot", name, None, f"robots.{name}.robot: found {name!r}, {why}")


def _numbers_hold(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """Numbers that are negative or not finite would make the comparisons below meaningless."""
    for member in fleet:
        for field in fields(Guarantees):
            found = getattr(member.guarantees, field.name)
            if isinstance(found, float | int) and not 0 <= found < float("inf"):
                yield _violation(member, field.name, 0.0, "expected a number from 0 on")


def _layers_hold(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """Each layer needs those below it."""
    for member in _trusted(fleet):
        if member.layers != _LAYERS[: len(member.layers)]:
            every = " + ".join(_LAYERS)
            yield _violation(member, "layers", every, f"expected the first layers of {every}")


def _commands_end(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """The last command acts for the dead-man time, the one before until its arrival: together at most T_hold."""
    for member in _trusted(fleet):
        own = member.guarantees
        longest = own.hold_s - own.control_period_s
        if not _at_most(own.dead_man_s, longest):
            yield _violation(
                member,
                "dead_man_s",
                longest,
                f"expected at most {_shown('dead_man_s', longest)}: hold_s {own.hold_s:.6g} s less "
                f"control_period_s {own.control_period_s:.6g} s",
            )


def _silence_is_counted(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """A vehicle without set-points moves no longer than its margins assume."""
    for member in _trusted(fleet):
        own = member.guarantees
        longest = own.reach_s - own.control_period_s
        if own.moves_on_s > 0 and not _at_most(own.moves_on_s, longest):
            advice = (
                "if the vehicle brakes by itself when its radio is silent, set onboard_brake = 1 below "
                f"[silence] of its robot file and `onboard_brake: true` below link of {member.robot} in the fleet "
                "file; else write onboard_brake = 0 there and export the policy again"
            )
            yield _violation(
                member,
                "moves_on_s",
                longest,
                f"expected at most {_shown('moves_on_s', longest)}, as in the margins of its policy file: {advice}",
            )


def _ticks_are_dense(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """Gamma * T / T_hold is at most one half (shield.md, "Symbols")."""
    for member in _trusted(fleet):
        own = member.guarantees
        most = own.hold_s / own.gap_share / 2 if own.gap_share > 0 else 0.0
        if not _at_most(own.control_period_s, most):
            yield _violation(
                member,
                "control_period_s",
                most,
                f"expected at most {_shown('control_period_s', most)}: half of hold_s "
                f"{own.hold_s:.6g} s over gap_share {own.gap_share:.6g}",
            )


def _intervals_hold(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    for member in _trusted(fleet):
        own = member.guarantees
        for name in ("velocity_lag", "command_delay"):
            value, low, high = (getattr(own, f"{name}{end}_s") for end in ("", "_low", "_high"))
            if not (_at_most(low, value) and _at_most(value, high)):
                yield _violation(member, f"{name}_s", high, f"expected within its interval, {low:.6g} to {high:.6g} s")


def _assumptions_are_there(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """An assumption missing from the data would otherwise go unnoticed."""
    untrusted = any(not member.trusted for member in fleet)
    for member in _trusted(fleet):
        found = {entry.name: entry.relation for entry in member.assumes}
        yield from _missing(member, found, NEEDED, "assumes")
        if untrusted and GATE in member.layers:
            found = {entry.name: entry.relation for entry in member.assumes_untrusted}
            yield from _missing(member, found, NEEDED_OF_UNTRUSTED, "assumes_untrusted")


def _missing(member: Obligation, found: dict[str, str], needed: dict[str, str], where: str) -> Iterator[Violation]:
    for name, relation in needed.items():
        if found.get(name) != relation:
            there = "missing" if name not in found else f"found the relation {found[name]!r}"
            yield Violation(
                member.robot,
                f"{where}.{name}",
                found.get(name),
                relation,
                f"robots.{member.robot}.{where}.{name}: {there}, expected the relation {relation!r}",
            )


def _assumptions_follow(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """The assumptions of each trusted robot about a peer follow from the guarantees of that peer."""
    for member, peer in permutations(fleet, 2):
        if not member.trusted:
            continue
        for entry in member.assumes if peer.trusted else member.assumes_untrusted:
            found = getattr(peer.guarantees, entry.name, None)
            if not _follows(found, entry):
                least = "at most " if entry.relation == "<=" else ""
                shown, assumed = _both_shown(entry.name, found, entry.value)
                yield Violation(
                    peer.robot,
                    entry.name,
                    found,
                    entry.value,
                    f"robots.{peer.robot}.{entry.name}: found {shown}, {member.robot} assumes "
                    f"{least}{assumed} of its peers",
                )


def _shares_fit(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """In the longest hold of a pair, gamma_i / (2 T_hold) and gamma_j / (2 T_hold) use at most one gap."""
    for one, other in combinations(_trusted(fleet), 2):
        own, peer = one.guarantees, other.guarantees
        if not (own.hold_s > 0 and peer.hold_s > 0):
            continue
        hold = max(own.hold_s, peer.hold_s)
        left = (2 - own.gap_share * hold / own.hold_s) * peer.hold_s / hold
        if not _at_most(peer.gap_share, left):
            yield _violation(
                other,
                "gap_share",
                left,
                f"expected at most {left:.6g} beside {one.robot} with {own.gap_share:.6g}: "
                "a pair would use more than its gap in one hold",
            )


def _room_fits(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """The separations contain both bodies and their uncertainties."""
    for one, other in combinations(_trusted(fleet), 2):
        own, peer = one.guarantees, other.guarantees
        least = sum(side.body_radius_m + side.look_ahead_m + side.localisation_m for side in (own, peer))
        if not _at_most(least, own.separation_m):
            yield _violation(
                one,
                "separation_m",
                least,
                f"expected at least {least:.6g} m: radii, look-aheads and localisation errors of "
                f"{one.robot} and {other.robot}",
            )
        if RESERVATIONS not in one.layers or RESERVATIONS not in other.layers:
            continue
        if own.clearance_m is None or own.lane_reach_m is None or peer.lane_reach_m is None:
            yield _violation(
                one,
                "clearance_m",
                None,
                f"expected numbers for clearance_m and lane_reach_m of {one.robot} and {other.robot}: "
                "they run reservations",
            )
        elif not _at_most(own.lane_reach_m + peer.lane_reach_m, own.clearance_m):
            reach = own.lane_reach_m + peer.lane_reach_m
            yield _violation(
                one,
                "clearance_m",
                reach,
                f"expected at least {reach:.6g} m: distances of the bodies of {one.robot} and "
                f"{other.robot} from the centre lines of their segments",
            )


def _untrusted_are_gated(fleet: Sequence[Obligation]) -> Iterator[Violation]:
    """Layer 1 leaves half of each gap to the peer; beside an untrusted robot the stop-tube check is needed."""
    untrusted = next((member.robot for member in fleet if not member.trusted), None)
    for member in _trusted(fleet) if untrusted is not None else ():
        if GATE not in member.layers:
            why = f"expected {GATE!r} among them: {untrusted} is not trusted"
            yield _violation(member, "layers", GATE, why)


RULES: tuple[Callable[[Sequence[Obligation]], Iterator[Violation]], ...] = (
    _names_differ,
    _numbers_hold,
    _layers_hold,
    _commands_end,
    _silence_is_counted,
    _ticks_are_dense,
    _intervals_hold,
    _assumptions_are_there,
    _assumptions_follow,
    _shares_fit,
    _room_fits,
    _untrusted_are_gated,
)


def _trusted(fleet: Sequence[Obligation]) -> tuple[Obligation, ...]:
    return tuple(member for member in fleet if member.trusted)


def _follows(found: Value, assumed: Assumption) -> bool:
    """Return whether a guarantee implies an assumption; False for an unknown relation, and `<=` of no numbers."""
    value = assumed.value
    if _is_number(found) and _is_number(value):
        least = assumed.relation == "<=" or (assumed.relation == "==" and _at_most(value, found))
        return least and _at_most(found, value)
    return assumed.relation == "==" and found == value


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _at_most(found: float, limit: float) -> bool:
    return found <= limit + _TOLERANCE * max(1.0, abs(limit))


def _violation(member: Obligation, field: str, expected: Value, why: str) -> Violation:
    """Return the violation of a guarantee of a robot; ``why`` has the expected value."""
    found = getattr(member.guarantees, field)
    text = f"robots.{member.robot}.{field}: found {_shown(field, found)}, {why}"
    return Violation(member.robot, field, found, expected, text)


def _both_shown(field: str, found: Value, expected: Value) -> tuple[str, str]:
    """Return both values as text; of long texts the part from where they differ."""
    if isinstance(found, str) and isinstance(expected, str):
        pairs = zip(found, expected, strict=False)
        same = next((index for index, (one, other) in enumerate(pairs) if one != other), 0)
        if same > _LONG:
            cut = same - _LONG // 2
            found, expected = (f"...{text[cut:]}" for text in (found, expected))
    return _shown(field, found), _shown(field, expected)


def _shown(field: str, value: Value) -> str:
    if isinstance(value, float):
        unit = next((unit for end, unit in _UNITS.items() if field.endswith(end)), "")
        return f"{value:.6g}{unit}"
    text = repr(value)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
