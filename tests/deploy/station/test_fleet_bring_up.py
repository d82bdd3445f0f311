"""A fleet is armed as a whole before anything moves, and nothing is ever started twice by itself."""

import pytest

from testudo_deploy.station.fleet_bring_up import RETRY_S, UNANSWERED_S, BringUp, Request


def fleet(**modes):
    made = BringUp(["r0", "r1"])
    for name, mode in modes.items():
        made.on_mode(name, mode, "", f"{mode}, says {name}")
    return made


def test_nobody_is_asked_before_it_was_heard():
    assert fleet().next_requests(0.0) == []
    assert fleet(r0="idle").next_requests(0.0) == [("r0", Request.ACTIVATE)]


def test_nobody_is_started_before_all_are_armed():
    made = fleet(r0="armed", r1="idle")
    assert made.next_requests(0.0) == [("r1", Request.ACTIVATE)]
    made.on_mode("r1", "armed", "", "")
    assert made.next_requests(RETRY_S) == [("r0", Request.START), ("r1", Request.START)]


def test_a_refused_request_is_repeated_but_not_at_once():
    made = fleet(r0="idle", r1="idle")
    assert len(made.next_requests(0.0)) == 2
    made.on_answer("r0")
    assert made.next_requests(RETRY_S / 2) == []
    assert made.next_requests(RETRY_S) == [("r0", Request.ACTIVATE)]  # that to r1 is still under way


@pytest.mark.parametrize(
    "news",
    [
        {"mode": "armed", "code": "", "by_hand": True},  # stopped by hand
        {"mode": "active", "code": ""},  # started by somebody else
        {"mode": "stopped", "code": "estop"},
        {"mode": "armed", "code": "stale_pose"},
    ],
)
def test_a_start_that_is_still_under_way_is_withdrawn_when_it_is_not_wanted_any_more(news):
    made = fleet(r0="armed", r1="armed")
    assert len(made.next_requests(0.0)) == 2
    assert made.withdrawn(0.1) == []
    mode, code = news.pop("mode"), news.pop("code")
    made.on_mode("r0", mode, code, "", **news)
    assert ("r0", Request.START) in made.withdrawn(0.2)
    assert ("r0", Request.START) not in made.withdrawn(0.2)  # once


def test_an_unanswered_request_is_withdrawn_before_it_is_sent_again():
    made = fleet(r0="idle", r1="active")
    assert made.next_requests(0.0) == [("r0", Request.ACTIVATE)]
    assert made.next_requests(UNANSWERED_S) == []
    assert made.withdrawn(UNANSWERED_S) == [("r0", Request.ACTIVATE)]
    assert made.next_requests(UNANSWERED_S) == [("r0", Request.ACTIVATE)]
    made.on_answer("r0")
    assert made.withdrawn(10 * UNANSWERED_S) == []


def test_a_robot_that_was_active_is_left_alone_whatever_becomes_of_it():
    made = fleet(r0="active", r1="active")
    assert made.done
    for mode in ("idle", "armed", "stopped", "fault"):
        made.on_mode("r0", mode, "", "")
        assert made.next_requests(100.0) == []


@pytest.mark.parametrize("mode", ["idle", "armed"])
def test_a_station_that_was_started_anew_starts_nobody_whom_an_operator_stopped(mode):
    made = fleet(r1="active")
    made.on_mode("r0", mode, "", "", was_active=True)
    assert made.next_requests(100.0) == []
    assert made.done
    made = fleet(r1="active")
    made.on_mode("r0", "disarmed", "", "", flew=True)
    assert made.next_requests(100.0) == []


def test_nobody_is_armed_or_started_while_an_emergency_stop_stands():
    """Also not a robot that came after the press, and whose guard knows nothing of it."""
    made = fleet(r0="idle", r1="armed")
    made.on_mode("r1", "stopped", "estop", "emergency stop")
    assert made.next_requests(0.0) == []
    made.on_mode("r1", "armed", "", "")
    assert made.next_requests(0.0) == [("r0", Request.ACTIVATE)]


def test_who_takes_an_emergency_stop_back_before_the_start_starts_nobody_by_that():
    """To take it back permits motion and begins none: robots on the ground are armed, drones do not take off."""
    made = fleet(r0="idle", r1="armed")
    made.on_mode("r0", "idle", "estop", "emergency stop")
    made.on_mode("r0", "idle", "", "")
    assert made.next_requests(10.0) == [("r0", Request.ACTIVATE)]
    made.on_mode("r0", "armed", "", "")
    assert made.next_requests(20.0) == []
    assert made.done  # people start them
    drones = fleet(r0="disarmed", r1="disarmed")
    drones.on_mode("r0", "disarmed", "estop", "emergency stop")
    drones.on_mode("r0", "disarmed", "", "")
    assert drones.next_requests(10.0) == []


@pytest.mark.parametrize("mode", ["idle", "armed"])
def test_once_a_person_intervened_before_the_start_nobody_is_started_by_itself(mode):
    """Who deactivates an armed robot goes to carry it, and who presses a button has a reason."""
    made = fleet(r0="armed", r1="armed")
    made.on_mode("r0", mode, "", "", by_hand=True)
    assert made.next_requests(10.0) == []
    assert "r0" in made.missing
    made.on_mode("r0", "active", "", "")
    assert made.next_requests(20.0) == [("r1", Request.START)]


def test_people_may_keep_the_start_for_themselves():
    made = BringUp(["r0", "r1"], starts=False)
    made.on_mode("r0", "idle", "", "")
    made.on_mode("r1", "armed", "", "ready to be started")
    assert made.next_requests(0.0) == [("r0", Request.ACTIVATE)]
    assert (made.done, list(made.missing)) == (False, ["r0"])
    made.on_mode("r0", "armed", "", "")
    assert made.next_requests(10.0) == []
    assert (made.done, made.missing) == (True, {})


def test_one_that_holds_was_started_and_the_rest_goes_on():
    made = fleet(r0="holding", r1="armed")
    assert made.next_requests(0.0) == [("r1", Request.START)]
    assert made.missing == {"r1": "armed, says r1"}


def test_strange_names_and_modes_say_nothing():
    made = fleet(r7="idle", r0="asleep")
    assert made.next_requests(0.0) == []
    assert made.missing["r0"] == "not heard yet"


def test_what_speaks_against_a_step_is_waited_for():
    made = fleet(r0="armed", r1="armed")
    made.on_mode("r1", "armed", "guard_brakes", "the guard brakes")
    assert made.next_requests(0.0) == []
    made.on_mode("r0", "idle", "peer_unheard", "r1 was never heard")
    assert made.next_requests(1.0) == []
    assert made.missing == {"r0": "r1 was never heard", "r1": "the guard brakes"}


def test_nobody_waits_for_a_robot_that_is_not_trusted():
    made = BringUp(["r0", "r1"], untrusted=["r1"])
    made.on_mode("r0", "armed", "", "")
    made.on_mode("r1", "idle", "peer_unheard", "nobody answers")
    assert made.next_requests(0.0) == [("r0", Request.START)]


def test_drones_take_off_one_by_one_and_are_started_when_all_hover():
    made = fleet(r0="disarmed", r1="disarmed")
    assert made.next_requests(0.0) == [("r0", Request.ACTIVATE), ("r1", Request.ACTIVATE)]
    made.on_mode("r0", "take_off", "", "")
    made.on_mode("r1", "hold", "", "")
    assert made.next_requests(1.0) == []
    made.on_mode("r0", "hold", "guard_brakes", "")
    assert made.next_requests(2.0) == []
    made.on_mode("r0", "hold", "", "")
    assert made.next_requests(3.0) == [("r0", Request.START), ("r1", Request.START)]


def test_a_drone_that_came_down_before_it_was_started_does_not_take_off_again_by_itself():
    made = fleet(r0="take_off", r1="hold")
    for mode in ("land", "disarmed"):
        made.on_mode("r0", mode, "", "")
    assert made.next_requests(10.0) == []
    assert "r0" in made.missing


def test_the_others_start_without_a_robot_that_all_know_as_lost_and_it_joins_when_it_comes():
    made = BringUp(["r0", "r1", "r2"])
    for name in ("r0", "r1"):
        made.on_mode(name, "armed", "", "")
    assert made.next_requests(0.0) == []  # control: r2 starts late, and all wait for it
    assert set(made.missing) == {"r0", "r1", "r2"}
    made.on_mode("r0", "armed", "", "", lost="r2")
    assert made.next_requests(1.0) == []  # r1 does not know of it yet, and would wait for its answer
    made.on_mode("r1", "armed", "", "", lost="r2")
    assert made.next_requests(2.0) == [("r0", Request.START), ("r1", Request.START)]
    for name in ("r0", "r1"):
        made.on_mode(name, "active", "", "", lost="r2")
    assert not made.done
    assert made.missing == {}
    made.on_mode("r2", "idle", "", "")
    for name in ("r0", "r1"):
        made.on_mode(name, "active", "", "")
    assert made.next_requests(3.0) == [("r2", Request.ACTIVATE)]
    made.on_mode("r2", "armed", "", "")
    assert made.next_requests(4.0) == [("r2", Request.START)]
