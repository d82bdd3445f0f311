"""Speed-and-separation zones against numbers computed by hand, and every kind of range that a scanner can send."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.separation_zones import Scan, ScannerParameters, SeparationZones
from testudo_hardware.spec import load_robot

GRITSBOT = load_robot("gritsbot_x")
SCANNER = ScannerParameters(period_s=0.1, error_m=0.03, height_m=0.2)
INF, NAN = math.inf, math.nan
COUNT = 360


def zones(scanner=SCANNER, spec=GRITSBOT, **options):
    return SeparationZones(spec, scanner, **options)


def scan(nearest=INF, stamp_s=10.0, *, at=0, wide=1, rest=INF, count=COUNT, **options):
    """Return a scan all around with ranges [m] at some beams and others elsewhere."""
    ranges = [rest] * count
    for k in range(wide):
        ranges[(at + k) % count] = nearest
    values = {"angle_min": -math.pi, "angle_increment": 2 * math.pi / count, "range_min_m": 0.1, "range_max_m": 12.0}
    return Scan(stamp_s, ranges_m=ranges, **(values | options))


def heard(*args, made=None, **options):
    made = made or zones()
    assert made.hear_scan(scan(*args, **options), options.get("stamp_s", 10.0) + 0.01)
    return made


def test_distance_of_a_robot_at_rest_by_hand():
    """2.0 m/s * (2 * 0.1 + 0.033 + 0.06) s, C = 1.2 - 0.4 * 0.2 = 1.12 m, 0.03 m of the scanner, 0.015 m of place."""
    spec = GRITSBOT
    assert spec.quantities["dynamics.command_delay"].high == pytest.approx(0.06)
    reaction_s = 0.2 + spec.control_period_s + 0.06
    assert zones().protective_distance_m(0.0) == pytest.approx(2.0 * reaction_s + 1.12 + 0.03 + 0.015)
    assert zones().protective_distance_m(0.0) == pytest.approx(1.751, abs=1e-3)


def test_distance_at_full_speed_by_hand():
    """At 0.24 m/s (0.2, and a scale of up to 1.2) with a lag of 0.096 s the robot stands after 0.096 ln 24 = 0.305 s.

    2.0 * (0.293 + 0.305) + 0.24 * 0.293 + 0.096 * 0.24 + 1.165 = 2.455 m.
    """
    assert GRITSBOT.quantities["dynamics.speed_scale"].high == pytest.approx(1.2)
    assert zones().protective_distance_m(0.2) == pytest.approx(2.455, abs=2e-3)


def test_distance_where_the_deceleration_is_limited_by_hand():
    """turtlebot4, 0.306 m/s: lag and limit leave a ramp of v - a lag, then the decay from a lag."""
    spec = load_robot("turtlebot4")
    lag, limit = spec.quantities["dynamics.velocity_lag"].high, spec.acceleration_limit_m_s2
    speed = 0.306 * spec.quantities["dynamics.speed_scale"].high
    corner = limit * lag
    assert speed > corner
    stop_s = (speed - corner) / limit + lag * math.log(corner / 0.01)
    stop_m = (speed**2 - corner**2) / (2 * limit) + lag * corner
    reaction_s = 0.2 + spec.control_period_s + spec.quantities["dynamics.command_delay"].high
    expected = 2.0 * (reaction_s + stop_s) + speed * reaction_s + stop_m + 1.12 + 0.03 + spec.position_error_m
    assert zones(spec=spec).protective_distance_m(0.306) == pytest.approx(expected)


@pytest.mark.parametrize(("height_m", "c_m"), [(0.0, 1.2), (0.2, 1.12), (0.875, 0.85), (2.0, 0.85)])
def test_intrusion_distance_of_iso_13855(height_m, c_m):
    assert ScannerParameters(0.1, 0.0, height_m).reach_over_m == pytest.approx(c_m)
    assert ScannerParameters(0.1, 0.0, height_m, intrusion_m=0.1).reach_over_m == 0.1


def test_the_protective_zone_stops_the_warning_zone_slows_and_beyond_both_it_drives():
    at_rest_m, full_m = zones().protective_distance_m(0.0), zones().protective_distance_m(0.2)
    body_m = GRITSBOT.body_radius_m
    near = heard(at_rest_m + body_m - 0.01)
    assert (near.code(10.0), near.speed_m_s) == ("scan_near", 0.0)
    between = heard((at_rest_m + full_m) / 2 + body_m)
    assert between.code(10.0) == ""
    assert 0.0 < between.speed_m_s < 0.2
    assert between.protective_distance_m(between.speed_m_s) == pytest.approx((at_rest_m + full_m) / 2, abs=1e-4)
    share = between.share((0.2, 1.0))
    assert share * 0.2 == pytest.approx(between.speed_m_s)
    assert between.share((0.0, 3.0)) == 1.0
    assert heard(full_m + body_m + 0.01).speed_m_s == 0.2
    assert heard().speed_m_s == 0.2


def test_noise_at_the_edge_does_not_start_the_robot_again():
    edge_m = zones().protective_distance_m(0.0) + GRITSBOT.body_radius_m
    made = heard(edge_m - 0.01)
    assert heard(edge_m + 0.05, made=made, stamp_s=10.1).code(10.1) == "scan_near"
    assert heard(edge_m + 0.15, made=made, stamp_s=10.2).code(10.2) == ""
    assert heard(edge_m + 0.05, made=made, stamp_s=10.3).code(10.3) == ""


def test_silence_is_a_stop():
    made = zones()
    assert made.code(10.0) == "scan_silent"
    heard(made=made)
    assert made.code(10.24) == ""
    assert made.code(10.25) == "scan_silent"
    assert not made.hear_scan(scan(stamp_s=10.0), 10.3)  # the same again
    assert not made.hear_scan(scan(stamp_s=10.1), 10.4)  # too old on arrival
    assert not made.hear_scan(scan(stamp_s=10.6), 10.4)  # from the future
    assert made.code(10.4) == "scan_silent"


@pytest.mark.parametrize(
    ("value", "wide", "taken", "code"),
    [
        (-INF, 1, True, "scan_near"),  # too near to measure
        (INF, COUNT, True, ""),  # nothing there
        (NAN, 1, True, ""),  # one unknown beam hides no leg
        (NAN, 2, False, "scan_silent"),  # two of one degree at 1.75 m are 6 cm
        (0.0, 2, False, "scan_silent"),  # below range_min: unknown, too, whatever the driver means by it
        (13.0, 2, False, "scan_silent"),  # beyond range_max and not infinite
        (-1.0, 2, False, "scan_silent"),
        (0.5, 1, True, "scan_near"),
        (5.0, COUNT, True, ""),
    ],
)
@pytest.mark.parametrize("at", [0, 100, COUNT - 1])  # also where the circle closes
def test_every_kind_of_range(value, wide, taken, code, at):
    made = zones()
    assert made.hear_scan(scan(value, at=at, wide=wide), 10.01) is taken
    assert made.code(10.01) == code


@pytest.mark.parametrize(
    "wrong",
    [{"angle_increment": 0.0}, {"angle_increment": NAN}, {"angle_min": INF}, {"range_max_m": 0.05}, {"count": 0}],
)
def test_a_scan_without_a_geometry_is_none(wrong):
    made = zones()
    assert not made.hear_scan(scan(**wrong) if wrong != {"count": 0} else Scan(10.0, 0.0, 0.1, 0.1, 12.0, []), 10.01)
    assert made.code(10.01) == "scan_silent"


def test_a_scanner_that_sees_less_far_than_the_protective_distance_never_lets_it_drive():
    assert heard(range_max_m=1.5).code(10.0) == "scan_near"
    assert 0 < heard(range_max_m=2.2).speed_m_s < 0.2


def test_where_the_scanner_does_not_look_it_does_not_drive():
    ahead = {"angle_min": -math.pi / 2, "angle_increment": math.pi / (COUNT - 1)}
    made = heard(**ahead)
    assert not made.is_blind((0.1, 0.5))
    assert made.is_blind((-0.1, 0.0))
    assert not made.is_blind((0.0, 1.0))
    turned = zones(ScannerParameters(0.1, 0.03, 0.2, mount=(0.0, 0.0, math.pi)))
    turned.hear_scan(scan(**ahead), 10.01)
    assert turned.is_blind((0.1, 0.0))
    base = zones(spec=load_robot("robomaster_s1"))
    base.hear_scan(scan(**ahead), 10.01)
    assert [base.is_blind(command) for command in ((0.5, 0.0), (0.0, 0.5), (-0.5, 0.1))] == [False, True, True]
    assert not heard().is_blind((-0.1, 0.0))


def test_distances_are_from_the_body_and_the_mount_counts():
    """A scanner 10 cm ahead of the middle sees something 2 m ahead: it is 2.1 m - 6.75 cm from the body."""
    mounted = zones(ScannerParameters(0.1, 0.03, 0.2, mount=(0.1, 0.0, 0.0)))
    heard(2.0, at=COUNT // 2, made=mounted)
    assert mounted._distance_m == pytest.approx(2.1 - GRITSBOT.body_radius_m)


def test_known_walls_are_no_people():
    made = zones(is_background=lambda point: point[0] > 0.9)
    assert heard(1.0, at=COUNT // 2, made=made).code(10.0) == ""
    assert heard(1.0, at=0, made=made, stamp_s=10.1).code(10.1) == "scan_near"


@given(st.floats(0.1, 12.0), st.floats(0.1, 12.0))
def test_nearer_is_never_faster(first, second):
    near, far = sorted((first, second))
    assert heard(near).speed_m_s <= heard(far).speed_m_s


@given(st.lists(st.floats(), min_size=1, max_size=40), st.floats(), st.floats())
def test_no_scan_raises_and_no_unknown_lets_it_drive_faster(ranges, angle_min, increment):
    made = zones()
    made.hear_scan(Scan(10.0, angle_min, increment, 0.1, 12.0, ranges), 10.01)
    assert 0.0 <= made.speed_m_s <= 0.2
    assert made.speed_m_s == 0.0 or made.code(10.01) == ""
    if any(value == -INF for value in ranges):
        assert made.speed_m_s == 0.0


def test_it_needs_no_numpy():
    code = "import sys, testudo_deploy.guard.separation_zones; print('numpy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
