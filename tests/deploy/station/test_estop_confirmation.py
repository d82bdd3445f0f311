"""An emergency stop is believed only when every guard confirms it."""

import pytest

from testudo_deploy.station.estop_confirmation import EstopConfirmation, unconfirmed_text


def hear(answers, robot, *codes):
    for code in codes:
        answers.hear_guard(robot, {"code": code}, 0.0)


def test_all_have_stopped_when_every_expected_guard_says_so():
    answers = EstopConfirmation(["r0", "r1"])
    assert not answers.all_stopped
    hear(answers, "r0", "", "estop")
    assert not answers.all_stopped
    assert unconfirmed_text(answers.answers) == "not confirmed by r1 (not heard): stop it by hand"
    hear(answers, "r1", "silence", "estop")
    assert answers.all_stopped
    assert unconfirmed_text(answers.answers) == ""


@pytest.mark.parametrize("codes", [[""], ["estop"], ["estop", ""], ["", "silence"]])
def test_a_guard_that_said_so_only_before_or_says_otherwise_has_not_confirmed(codes):
    answers = EstopConfirmation()
    hear(answers, "r0", *codes)
    assert not answers.all_stopped
    assert "r0 (its guard did not brake for it)" in unconfirmed_text(answers.answers)


def test_a_robot_whose_guard_is_dead_is_missed_even_without_a_fleet_file():
    answers = EstopConfirmation()
    hear(answers, "r0", "estop", "estop")
    assert answers.all_stopped
    answers.hear_mode("r1", "drives", {"mode": "active"}, 0.0)
    assert not answers.all_stopped
    assert [(item.robot, item.stopped, item.guard, item.mode) for item in answers.answers] == [
        ("r0", True, "estop", ""),
        ("r1", False, None, "active"),
    ]


def test_nobody_heard_is_nobody_stopped():
    assert not EstopConfirmation().all_stopped
