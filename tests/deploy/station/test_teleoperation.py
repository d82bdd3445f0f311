"""Teleoperation: a key or an axis that is not held, or does not repeat, is a command of zero."""

import math

import pytest

from testudo_deploy.station.teleoperation import (
    FIRST_S,
    JOY_SILENT_S,
    NEXT,
    REPEATED_S,
    SHARE,
    Hands,
    Teleoperation,
    is_end,
    joystick_axes,
    keys_of,
)
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

GROUND, DRONE = load_robot("gritsbot_x"), load_robot("crazyflie_2x")
FORWARD = SHARE * GROUND.speed_limit_m_s
TURN = SHARE * GROUND.turn_rate_limit_rad_s


def test_a_key_moves_while_it_repeats_and_stops_soon_after():
    hand = Teleoperation(GROUND)
    assert hand.command(0.0) == (0.0, 0.0)
    hand.press("w", 0.0)
    assert hand.command(FIRST_S - 0.01) == pytest.approx((FORWARD, 0.0))
    assert hand.command(FIRST_S) == (0.0, 0.0)  # a key that was only touched
    for k in range(30):
        hand.press("w", 1.0 + 0.04 * k)
    last_s = 1.0 + 0.04 * 29
    assert hand.command(last_s + REPEATED_S - 0.01)[0] > 0
    assert hand.command(last_s + REPEATED_S) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("key", "command"), [("w", (FORWARD, 0)), ("s", (-FORWARD, 0)), ("a", (0, TURN)), ("d", (0, -TURN))]
)
def test_each_key_has_its_direction(key, command):
    hand = Teleoperation(GROUND)
    hand.press(key, 0.0)
    assert hand.command(0.1) == pytest.approx(command)


@pytest.mark.parametrize("key", [" ", "x", "r"])
def test_any_other_key_stops_at_once(key):
    hand = Teleoperation(GROUND)
    hand.press("w", 0.0)
    hand.press(key, 0.1)
    assert hand.command(0.1) == (0.0, 0.0)


def test_a_drone_has_a_height_and_the_speed_is_changed_within_the_limits():
    hand = Teleoperation(DRONE, 0.1)
    hand.press("r", 0.0)
    assert hand.command(0.1) == pytest.approx((0, 0, 0.1))
    for _ in range(30):
        hand.press("+", 0.1)
    assert hand.command(0.1) == pytest.approx((0, 0, DRONE.speed_limit_m_s))
    for _ in range(30):
        hand.press("-", 0.1)
    assert 0 < hand.command(0.1)[2] <= 0.1 * DRONE.speed_limit_m_s + 1e-9


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, 9.0])
def test_a_speed_beyond_the_robot_is_refused(speed):
    with pytest.raises(TestudoError, match=r"--speed: found .* expected above 0 up to"):
        Teleoperation(GROUND, speed)


def test_a_joystick_moves_until_it_is_let_go_or_silent():
    hand = Teleoperation(GROUND)
    hand.move((1.0, -0.5), 0.0)
    assert hand.command(0.1) == pytest.approx((FORWARD, -0.5 * TURN))
    assert hand.command(JOY_SILENT_S) == (0.0, 0.0)
    for resting in ((0.05, 0.0), (math.nan, math.inf)):
        hand.move(resting, 1.0)
        assert hand.command(1.0) == (0.0, 0.0)
    hand.move((7.0, 0.0), 2.0)
    assert hand.command(2.0) == pytest.approx((FORWARD, 0.0))  # never faster than a full axis


def test_axes_are_chosen_by_number_and_a_missing_one_rests():
    assert joystick_axes([0.1, 0.2, 0.3], (1, 0)) == (0.2, 0.1)
    assert joystick_axes([0.1], (1, 0)) == (0.0, 0.1)


def test_one_robot_is_driven_and_the_others_stand():
    hands = Hands({name: Teleoperation(GROUND) for name in ("r0", "r1")})
    hands.press("w", 0.0)
    assert hands.commands(0.1) == {"r0": pytest.approx((FORWARD, 0.0)), "r1": (0.0, 0.0)}
    hands.press(NEXT, 0.2)
    assert (hands.driven, hands.commands(0.2)) == ("r1", {"r0": (0.0, 0.0), "r1": (0.0, 0.0)})
    hands.press("s", 0.3)
    assert hands.commands(0.3)["r1"][0] < 0
    hands.press(NEXT, 0.3)
    assert (hands.driven, hands.commands(0.3)["r0"]) == ("r0", (0.0, 0.0))  # what was held before is forgotten


def test_keys_of_a_terminal_are_told_apart():
    assert keys_of("wA\x1b[A\x1b[B\x1bOC\x1b[Dq") == ["w", "a", "w", "s", "d", "a", "q"]
    assert keys_of("\x1b[H") == [" "]
    assert keys_of("\x1b") == ["\x1b"]
    assert keys_of("") == []
    assert [key for key in ("q", "\x03", "\x04", "w", " ") if is_end(key)] == ["q", "\x03", "\x04"]
