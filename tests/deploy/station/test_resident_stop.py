"""The resident emergency stop: what is confirmed was heard after the press, and no doubt counts as stopped."""

from testudo_deploy.station.resident_stop import ECHO_S, SILENT_S, ResidentStop

ESTOP, PASSES = {"code": "estop"}, {"code": ""}


def pressed_at(now_s):
    stop = ResidentStop(["r0", "r1"])
    for name in ("r0", "r1"):
        stop.hear_guard(name, PASSES, now_s - 0.05)
    assert stop.press("key", now_s)
    return stop


def test_the_stop_is_confirmed_once_every_guard_reports_it_after_the_press():
    stop = pressed_at(10.0)
    assert stop.hear_guard("r0", ESTOP, 10.02)
    assert not stop.is_confirmed(10.03)
    assert stop.hear_guard("r1", {"code": "station_lost"}, 10.04)
    assert stop.is_confirmed(10.05)
    robots = stop.answer(10.05)["robots"]
    assert {name: (found["stopped"], round(found["after_s"], 3)) for name, found in robots.items()} == {
        "r0": (True, 0.02),
        "r1": (True, 0.04),
    }


def test_silence_another_code_and_an_unpressed_stop_are_no_confirmation():
    stop = pressed_at(10.0)
    stop.hear_guard("r0", ESTOP, 10.02)
    stop.hear_guard("r1", {"code": "second_publisher"}, 10.02)
    assert not stop.is_confirmed(10.05)
    stop.hear_guard("r1", ESTOP, 10.1)
    assert stop.is_confirmed(10.1)
    assert not stop.is_confirmed(10.1 + SILENT_S + 0.01)  # both guards have died since
    assert not any(found["stopped"] for found in stop.answer(11.0)["robots"].values())
    assert stop.hear_guard("r0", PASSES, 11.0)  # a guard that is restarted, and has not heard the level yet
    assert not stop.is_confirmed(11.0)
    never = ResidentStop(["r0"])
    never.hear_guard("r0", ESTOP, 10.0)
    assert not never.is_confirmed(10.0)


def test_a_confirmation_of_an_earlier_press_does_not_count_for_the_next():
    stop = pressed_at(10.0)
    stop.hear_guard("r0", ESTOP, 10.1)
    stop.hear_guard("r1", ESTOP, 10.1)
    assert stop.release(10.15) == ""
    assert not stop.level
    stop.press("key", 10.2)
    assert not stop.is_confirmed(10.2)


def test_a_held_button_refuses_the_release_until_it_is_let_go():
    stop = pressed_at(10.0)
    stop.press("the button", 10.1, held=True)
    assert "still pressed: the button" in stop.release(10.2)
    assert stop.level
    stop.let_go("the button")
    assert stop.level
    assert stop.release(10.3) == ""


def test_a_source_that_pressed_before_a_release_presses_again():
    stop = pressed_at(10.0)
    assert not stop.press("key", 10.1)
    stop.release(10.2)
    assert stop.sources == []
    assert stop.press("key", 11.0)
    assert stop.level


def test_the_level_of_another_publisher_is_adopted_but_an_old_release_does_not_undo_a_press():
    """What `testudo estop` on another computer pressed stays for guards that start after that program has ended."""
    stop = ResidentStop(["r0"])
    assert stop.hear_level(True, 10.0)
    assert stop.level
    assert not stop.hear_level(False, 10.0 + ECHO_S / 2)
    assert stop.level
    assert stop.hear_level(False, 10.0 + 2 * ECHO_S)
    assert not stop.level
    assert not stop.hear_level(False, 20.0)


def test_a_short_press_of_another_publisher_ends_a_moment_after_its_release():
    """The resident process held it: no robot could be rearmed until somebody released it again."""
    stop = ResidentStop(["r0"])
    assert stop.hear_level(True, 10.0)
    assert not stop.step(10.1)
    assert not stop.hear_level(False, 10.2)  # it may be older than the press
    assert not stop.step(10.0 + 0.9 * ECHO_S)
    assert stop.step(10.0 + 1.1 * ECHO_S)
    assert not stop.level
    assert stop.hear_level(True, 20.0)
    assert not stop.hear_level(False, 20.1)
    assert stop.press("testudo estop", 20.2)  # an operator of this station, too
    assert not stop.step(30.0)
    assert stop.level


def test_the_echo_of_an_own_release_does_not_undo_the_next_press():
    stop = ResidentStop(["r0"])
    stop.press("key", 10.0)
    assert stop.release(12.0) == ""
    stop.press("key", 12.1)
    assert not stop.hear_level(False, 12.2)
    assert not stop.step(20.0)
    assert stop.level
