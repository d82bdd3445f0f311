"""What a drone does when its radio is silent is in its tube, its shares of gaps, and what the fleet checker sees."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.fine_motion import STEP_S, acting, drawn, on_its_way, random_command, roll
from tests.deploy.shield.test_downwash import braking
from tests.deploy.tiny_policy import draft_contract, tiny_model, with_test_vector
from tests.effort import examples

from testudo_deploy.admission.safety_contract_rules import check_fleet, find_violations
from testudo_deploy.admission.safety_contracts import SafetyContractError, fleet_obligations, obligation
from testudo_deploy.contract.rules import check_contract
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.shield.geometry import point_distance, z_scaled
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube, stop_tube_parameters, tube_segments
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot

GRAVITY_M_S2 = 9.81


def falling(spec):
    """Return the drone as one that levels out, coasts and falls when its radio is silent."""
    said = replace(spec.silence["silence.onboard_brake"], value=0.0, low=0.0, high=0.0)
    return replace(spec, silence={**spec.silence, "silence.onboard_brake": said})


STOCK = falling(load_robot("crazyflie_2x"))
BRAKING = braking(STOCK)


def silent_path(spec, truth, run, command, rng):
    """Return where the body is (S, 3) from the pose on, if nothing after ``command`` reaches the vehicle."""
    level, cut = (spec.silence[f"silence.{name}_after"].value for name in ("level", "cut"))
    sent = ((run.age_s, command), *run.sent)
    begin = run.age_s + truth.delay_s + level
    places, _, speeds = roll(spec, truth, run.start, lambda t: acting(sent, truth, t), begin)
    place, velocity, path = places[-1].copy(), speeds[-1].copy(), [*places]
    drag = rng.uniform(*(getattr(spec.silence["silence.coast_drag"], end) for end in ("low", "high")))
    angle = rng.uniform(0, 2 * np.pi)
    drift = GRAVITY_M_S2 * spec.silence["silence.level_error"].high * np.array([np.cos(angle), np.sin(angle), 0.0])
    climbs = truth.scale[2] * command[2]
    for step in range(round((cut - level + 0.6) / STEP_S)):
        falls = step * STEP_S >= cut - level
        rate = -drag * velocity * [1, 1, 0] + (np.array([0, 0, -GRAVITY_M_S2]) if falls else drift)
        if not falls:
            rate[2] = (climbs - velocity[2]) / truth.lag_s
        velocity = velocity + STEP_S * rate
        place = place + STEP_S * velocity
        path.append(place.copy())
    return np.array(path)


def farthest_off(spec, tube, path):
    """Return how far a path (S, 3) is from the lines of a tube, as lanes count it."""
    ratio, ticks = stop_tube_parameters(spec).height_ratio, stop_tube_parameters(spec).hold_ticks
    starts, ends = tube_segments(z_scaled(tube, ratio), ticks)
    return point_distance(z_scaled(path.T, ratio)[:, :, None], starts[:, None], ends[:, None]).min(axis=1).max()


def tube_of(spec, run, command):
    model = motion_model(spec)
    return stop_tube(
        model,
        run.measured.position_world,
        run.estimate,
        effective_command(model, command),
        stop_tube_parameters(spec).hold_ticks,
        stop_tube_parameters(spec).sample_ticks,
    )


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ends=st.booleans())
def test_a_drone_that_has_gone_silent_stays_in_its_tube(seed, ends):
    rng = np.random.default_rng(seed)
    truth = drawn(STOCK, rng, ends=ends)
    run, command = on_its_way(motion_model(STOCK), truth, rng), random_command(STOCK, rng)
    path = silent_path(STOCK, truth, run, command, rng)
    assert farthest_off(STOCK, tube_of(STOCK, run, command), path[::5]) <= stop_tube_parameters(STOCK).tube_error_m


def test_without_coasting_it_would_leave_it():
    """Negative control: the tube and the error of a drone that brakes by itself."""
    found = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = drawn(STOCK, rng)
        run, command = on_its_way(motion_model(STOCK), truth, rng), random_command(STOCK, rng)
        path = silent_path(STOCK, truth, run, command, rng)
        off = farthest_off(BRAKING, tube_of(BRAKING, run, command), path[::5])
        found = max(found, off - stop_tube_parameters(BRAKING).tube_error_m)
    assert found > 0.5


def test_what_a_silent_drone_costs():
    """About 1.5 m of drift at 1 m/s, and it falls: whole columns, and slow beside others."""
    stock, brakes = projection_parameters(STOCK), projection_parameters(BRAKING)
    assert (STOCK.hold_s, BRAKING.hold_s) == pytest.approx((0.52, 0.12))
    assert stock.coast_s == pytest.approx(2.0 - 0.5 + 0.8)
    assert brakes.coast_s == 0.0
    assert stock.height_ratio > 100 > brakes.height_ratio
    assert stock.reach_s == pytest.approx(2.82)
    for made, spec in ((stock, STOCK), (brakes, BRAKING)):
        assert made.separation_m >= stop_tube_parameters(spec).clearance_m, (
            "else layer 1 leads where lanes are not free"
        )


def member(spec, contract_of):
    return obligation("cf1", spec, draft_contract(contract_of), space=stop_tube_parameters(spec))


def test_the_fleet_checker_refuses_a_policy_that_counts_on_a_brake_that_is_not_there():
    """Robot, field, both values, and which line to change."""
    good = member(BRAKING, BRAKING)
    assert good.guarantees.moves_on_s == pytest.approx(0.1)
    check_fleet((good, replace(good, robot="cf2")))
    wrong = member(STOCK, BRAKING)
    (violation,) = [
        found for found in find_violations((wrong, replace(good, robot="cf2"))) if found.field == "moves_on_s"
    ]
    assert violation.found == pytest.approx(2.8)
    assert violation.expected == pytest.approx(0.1)
    for words in ("robots.cf1.moves_on_s: found 2.8 s", "at most 0.1 s", "onboard_brake = 1", "[silence]"):
        assert words in violation.text
    with pytest.raises(SafetyContractError, match="the fleet is refused"):
        check_fleet((wrong, replace(good, robot="cf2")))


@pytest.mark.parametrize(
    ("link", "passes"),
    [("", True), ("link: crazyswarm2", False), ("link: {profile: crazyswarm2, onboard_brake: true}", True)],
)
def test_a_brake_of_a_real_vehicle_counts_once_the_fleet_file_confirms_it(tmp_path, link, passes):
    """The robot file says what the shield is made for; whether the firmware has the brake only its owner knows."""
    file = tmp_path / "fleet.yaml"
    pose = "pose: {source: mocap}" if link else ""
    robots = "\n".join(
        f"  cf{k}:\n    type: crazyflie_2x\n    initial_position: [{k}, 0, 1]\n    initial_yaw: 0\n"
        f"    goal: [{k}, 1, 1]\n    {link}\n    {pose}"
        for k in (1, 2)
    )
    file.write_text(f"fileversion: 1\npolicy: policy.onnx\npolicy_sha256: {'a' * 64}\nrobots:\n{robots}\n")
    fleet = load_fleet(file)
    contract = draft_contract(fleet.robots[0].spec)
    found = [
        violation
        for violation in find_violations(fleet_obligations(fleet, contract))
        if violation.field == "moves_on_s"
    ]
    assert (not found) == passes
    if not passes:
        assert "`onboard_brake: true` below link of cf1 in the fleet file" in found[0].text
        assert found[0].found == pytest.approx(2.8)


def test_a_contract_with_margins_of_another_silence_is_refused():
    contract = draft_contract(STOCK)
    contract = with_test_vector(contract, tiny_model(contract))
    check_contract(contract, "mine")
    for changes, said in (({"coast_s": 0.0}, "shield.coast_s"), ({"height_ratio": 2.5}, "shield.height_ratio")):
        with pytest.raises(TestudoError, match=said):
            check_contract(replace(contract, shield=replace(contract.shield, **changes)), "mine")
