"""A fleet starts only if what each robot assumes of its peers is what they guarantee.

Every field that differs is refused with robot, field and both values; without the rule that is meant to see it, the
same fleet would pass; what `run_fleet` starts is checked before any process.
"""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import draft_contract, make_tiny_policy
from tests.effort import examples

from testudo_deploy.admission import fleet_admission, safety_contract_rules
from testudo_deploy.admission.safety_contract_rules import NEEDED, check_fleet, find_violations
from testudo_deploy.admission.safety_contracts import (
    PROJECTION,
    RESERVATIONS,
    Guarantees,
    Obligation,
    SafetyContractError,
    fleet_obligations,
    obligation,
    save_safety_contracts,
)
from testudo_deploy.commands.inspect import inspect
from testudo_deploy.launch import fleet_run as drive_module
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import load_robot, robot_files


def make_fleet(name="gritsbot_x", count=2, *, gated=False):
    spec = load_robot(name)
    space = stop_tube_parameters(spec) if gated else None
    return tuple(obligation(f"r{k}", spec, draft_contract(spec), space=space) for k in range(count))


def changed(member, **changes):
    return replace(member, guarantees=replace(member.guarantees, **changes))


def consistent(fleet, **changes):
    """Change guarantees of all robots, and what they assume of each other with them."""
    made = []
    for member in fleet:
        assumes = tuple(
            replace(entry, value=changes[entry.name]) if entry.name in changes else entry for entry in member.assumes
        )
        made.append(replace(changed(member, **changes), assumes=assumes))
    return tuple(made)


WORSE = {
    "shield_version": 99,
    "layers": PROJECTION,
    "frame": "map",
    "arena": "null",
    "dead_man_s": 0.5,
    "control_period_s": 0.05,
    "separation_m": 0.2,
    "height_ratio": 2.5,
    "clearance_m": 0.1,
    "body_radius_m": 0.2,
    "look_ahead_m": 0.1,
    "localisation_m": 0.05,
    "speed_m_s": 0.4,
    "acceleration_m_s2": 9.0,
    "velocity_lag_s": 0.09,
    "velocity_lag_high_s": 0.2,
    "command_delay_s": 0.045,
    "command_delay_high_s": 0.08,
    "contract_hash": "0" * 64,
}
"""One value of each field that peers rely on, which does not do."""


def test_every_assumption_has_a_case():
    assert set(WORSE) == set(NEEDED)


@pytest.mark.parametrize("field", WORSE)
def test_a_robot_that_differs_is_refused_with_names_and_both_values(field):
    r0, r1 = make_fleet(gated=True)
    fleet = (r0, changed(r1, **{field: WORSE[field]}))
    (violation,) = [
        found
        for found in find_violations(fleet)
        if (found.robot, found.field) == ("r1", field) and "r0 assumes" in found.text
    ]
    assert violation.found == WORSE[field]
    assumed = next(entry.value for entry in r0.assumes if entry.name == field)
    assert violation.expected == assumed
    assert violation.text.startswith(f"robots.r1.{field}: found ")
    shown = f"{assumed:.6g}" if isinstance(assumed, float) else str(assumed)[-30:]
    assert "r0 assumes" in violation.text
    assert shown in violation.text or field == "contract_hash"
    with pytest.raises(SafetyContractError, match="the fleet is refused: robots"):
        check_fleet(fleet)


def test_the_sentence_is_plain_and_counts_the_rest():
    r0, r1 = make_fleet(gated=True)
    late = changed(r1, dead_man_s=0.5)
    with pytest.raises(SafetyContractError) as refused:
        check_fleet((r0, late))
    assert str(refused.value) == (
        "the fleet is refused: robots.r1.dead_man_s: found 0.5 s, expected at most 0.1 s: hold_s 0.133 s less "
        "control_period_s 0.033 s (and 1 more violation)"
    )
    # the radius is seen by the assumption, and then by the sum over the pair
    texts = [violation.text for violation in find_violations((r0, changed(r1, body_radius_m=0.2)))]
    assert texts[0] == "robots.r1.body_radius_m: found 0.2 m, r0 assumes at most 0.0675 m of its peers"


@pytest.mark.parametrize(
    ("changes", "rule", "field"),
    [
        ({"dead_man_s": 0.15}, "_commands_end", "dead_man_s"),
        ({"control_period_s": 0.09, "hold_s": 0.15, "dead_man_s": 0.05}, "_ticks_are_dense", "control_period_s"),
        ({"gap_share": 1.2}, "_shares_fit", "gap_share"),
        ({"separation_m": 0.2}, "_room_fits", "separation_m"),
        ({"clearance_m": 0.1}, "_room_fits", "clearance_m"),
        ({"clearance_m": None, "lane_reach_m": None}, "_room_fits", "clearance_m"),
        ({"velocity_lag_s": 0.3}, "_intervals_hold", "velocity_lag_s"),
        ({"command_delay_low_s": 0.055}, "_intervals_hold", "command_delay_s"),
        ({"layers": f"{PROJECTION} + {RESERVATIONS}"}, "_layers_hold", "layers"),
        ({"position": None}, "_assumptions_are_there", "assumes.frame"),
        ({"separation_m": math.nan}, "_numbers_hold", "separation_m"),
        ({"silence_s": math.inf}, "_numbers_hold", "silence_s"),
        ({"robot": "r0"}, "_names_differ", "robot"),
        ({"frame": "map"}, "_assumptions_follow", "frame"),
    ],
)
def test_without_its_rule_a_bad_fleet_would_pass(monkeypatch, changes, rule, field):
    """Each rule of the checker is needed: the same fleet, in which the robots agree, passes the other rules."""
    fleet = make_fleet(gated=True)
    if field == "assumes.frame":
        fleet = tuple(
            replace(member, assumes=tuple(entry for entry in member.assumes if entry.name != "frame"))
            for member in fleet
        )
    elif field == "robot":
        fleet = (fleet[0], replace(fleet[1], robot="r0"))
    elif field == "frame":
        fleet = (fleet[0], changed(fleet[1], frame="map"))
    else:
        fleet = consistent(fleet, **changes)
    assert field in [violation.field for violation in find_violations(fleet)]
    others = tuple(one for one in safety_contract_rules.RULES if one.__name__ != rule)
    assert len(others) == len(safety_contract_rules.RULES) - 1
    monkeypatch.setattr(safety_contract_rules, "RULES", others)
    # a NaN follows from nothing, and a robot that disagrees assumes the same of others
    assert field not in [found.field for found in find_violations(fleet)] or field == "separation_m"


def test_a_larger_share_is_made_up_for_by_the_peer_or_not():
    r0, r1 = make_fleet()
    assert not find_violations((changed(r0, gap_share=0.5), r1))
    assert not find_violations((changed(r0, gap_share=0.5), changed(r1, gap_share=1.5)))
    (violation,) = find_violations((changed(r0, gap_share=0.6), changed(r1, gap_share=1.5)))
    assert (violation.robot, violation.field, violation.found) == ("r1", "gap_share", 1.5)
    assert violation.expected == pytest.approx(1.4)


@pytest.mark.parametrize("field", [entry.name for entry in fields(Guarantees) if "float" in str(entry.type)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_what_is_no_number_is_refused(field, value):
    r0, r1 = make_fleet(gated=True)
    with pytest.raises(SafetyContractError, match=rf"robots\.r1\.{field}: found {value:g}"):
        check_fleet((r0, changed(r1, **{field: value})))


def test_an_untrusted_robot_needs_the_gate_and_a_known_size_and_speed():
    r0, r1, r2 = make_fleet(count=3, gated=True)
    chair = replace(changed(r2, shield_version=0, frame="", contract_hash=""), trusted=False)
    check_fleet((r0, r1, chair))
    for field, value in (("speed_m_s", 2.0), ("body_radius_m", 0.4)):
        with pytest.raises(SafetyContractError, match=rf"robots\.r2\.{field}: found .*, r0 assumes at most"):
            check_fleet((r0, r1, changed(chair, **{field: value})))
    plain = make_fleet(count=2)
    with pytest.raises(SafetyContractError, match=r"robots\.r0\.layers: found 'projection', .*r2 is not trusted"):
        check_fleet((*plain, chair))
    blind = tuple(replace(member, assumes_untrusted=()) for member in (r0, r1))
    with pytest.raises(SafetyContractError, match=r"robots\.r0\.assumes_untrusted\.body_radius_m: missing"):
        check_fleet((*blind, chair))


def test_robots_expect_of_an_untrusted_one_the_speed_that_the_fleet_file_states(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 2)
    chair = replace(fleet.robots[1], untrusted=True, untrusted_speed_m_s=2.0)
    contract = draft_contract(fleet.robots[0].spec)
    r0, r1 = fleet_obligations(replace(fleet, robots=(fleet.robots[0], chair), tracking=True), contract)
    check_fleet((r0, r1))
    assert {entry.name: entry.value for entry in r0.assumes_untrusted}["speed_m_s"] == r1.guarantees.speed_m_s == 2.0
    with pytest.raises(SafetyContractError, match=r"robots\.r1\.speed_m_s: found 2 .*, r0 assumes at most 0\.2"):
        check_fleet((make_fleet(gated=True)[0], r1))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", sorted(robot_files()))
def test_equal_robots_pass_and_their_data_survives_json(name, gated):
    fleet = make_fleet(name, 3, gated=gated)
    check_fleet(fleet)
    assert tuple(Obligation.from_dict(json.loads(json.dumps(one.to_dict()))) for one in fleet) == fleet
    assert {entry.name: entry.relation for entry in fleet[0].assumes} == NEEDED


def test_different_robots_are_refused():
    with pytest.raises(SafetyContractError, match=r"robots\.\w+\.\w+: found .* more violations"):
        check_fleet((make_fleet("gritsbot_x")[0], make_fleet("turtlebot4")[1]))


@settings(max_examples=examples(60))
@given(
    st.sampled_from(sorted(robot_files())),
    st.integers(0, 6),
    st.booleans(),
    st.sampled_from(["dead_man_s", "control_period_s", "body_radius_m", "speed_m_s", "shield_version"]),
    st.floats(1.001, 20),
)
def test_equal_obligations_pass_at_any_size_and_one_that_is_worse_never_does(name, count, gated, field, factor):
    fleet = make_fleet(name, count, gated=gated)
    check_fleet(fleet)
    if count >= 2:
        last = fleet[-1]
        value = getattr(last.guarantees, field)
        worse = changed(last, **{field: value + 1 if isinstance(value, int) else value * factor})
        with pytest.raises(SafetyContractError, match=rf"robots\.{last.robot}\."):
            check_fleet((*fleet[:-1], worse))


def test_an_obligation_that_was_edited_is_refused():
    values = make_fleet()[0].to_dict()
    with pytest.raises(SafetyContractError, match=r"obligation\.trusted: found 1, expected true or false"):
        Obligation.from_dict(values | {"trusted": 1})
    with pytest.raises(SafetyContractError, match=r"obligation\.wings: unknown key"):
        Obligation.from_dict(values | {"wings": 2})


def test_a_run_folder_keeps_them(tmp_path):
    fleet = make_fleet(gated=True)
    save_safety_contracts(tmp_path, fleet)
    stored = json.loads((tmp_path / "obligations.json").read_text(encoding="utf-8"))
    assert tuple(Obligation.from_dict(entry) for entry in stored) == fleet
    with pytest.raises(SafetyContractError, match="cannot be written"):
        save_safety_contracts(tmp_path / "none", fleet)


def test_a_shield_without_the_terms_is_refused():
    spec = load_robot("gritsbot_x")
    contract = draft_contract(spec)
    bare = contract.replace(shield=replace(contract.shield, terms=()))
    with pytest.raises(SafetyContractError, match="no term 'bodies'"):
        obligation("r0", spec, bare)


def test_drive_refuses_before_any_process_starts(tmp_path, monkeypatch):
    fleet = make_tiny_fleet(tmp_path)
    changes = {"r1": {"dead_man_s": 0.5}}

    def spoiled(*arguments, **named):
        return tuple(changed(one, **changes.get(one.robot, {})) for one in fleet_obligations(*arguments, **named))

    monkeypatch.setattr(fleet_admission, "fleet_obligations", spoiled)
    monkeypatch.setattr(drive_module, "FleetProcesses", None)
    with pytest.raises(SafetyContractError, match=r"robots\.r1\.dead_man_s: found 0.5 s"):
        run_fleet(fleet, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_inspect_shows_what_peers_rely_on(tmp_path, capsys):
    contract = make_tiny_policy(tmp_path / "policy.onnx", load_robot("gritsbot_x"))
    inspect(tmp_path / "policy.onnx", tmp_path / "policy.json")
    shown = capsys.readouterr().out
    assert "Obligation" in shown
    stored = json.loads((tmp_path / "policy.json").read_text())["obligation"]
    read = Obligation.from_dict(stored)
    assert read.guarantees.contract_hash == contract.contract_hash
    for name in NEEDED:
        assert name in shown
