"""Status of a fleet without ROS: robots' messages, the table of `testudo status`, confirmations of a stop."""

import json
from io import StringIO

import pytest
from rich.console import Console

from testudo_deploy import cli
from testudo_deploy.guard.command_guard import SENTENCES
from testudo_deploy.station.fleet_status import (
    EstopConfirmation,
    FleetStatus,
    silence_sentence,
    status_values,
    unconfirmed_text,
)
from testudo_deploy.supervision.modes import Mode
from testudo_nodes.station.status import MODE_STYLES, status_table

MODE = {
    "mode": "active",
    "code": "",
    "pose_age_s": "0.034",
    "peer_age_s": "0.0612",
    "late_ticks": "3",
    "interventions": "45",
}
GUARD = {"code": "", "refused": "2"}


def heard(*, mode=None, sentence="active", guard=None, seconds=4.0, rate_hz=30.0, name="r0", robots=()):
    """Return a status of a robot that was heard for some seconds, at 100 s and before."""
    fleet = FleetStatus(robots)
    for k in range(int(2 * seconds) + 1):
        now_s = 100.0 - seconds + 0.5 * k
        values = MODE | {"ticks": str(int(rate_hz * 0.5 * k))} | (mode or {})
        fleet.on_mode(name, sentence, values, now_s)
        fleet.on_guard_status(name, GUARD | {"commands": str(int(rate_hz * 0.5 * k))} | (guard or {}), now_s)
    return fleet


def shown(robots, width=170):
    console = Console(width=width, file=StringIO())
    console.print(status_table(robots, 7))
    return console.file.getvalue()


def test_a_robot_that_drives_is_shown_with_ages_rates_and_shares():
    fleet = heard()
    (robot,) = fleet.robots(100.0)
    assert not robot.is_silent
    assert (robot.mode, robot.guard, robot.late_ticks, robot.interventions) == ("active", "", 3, 45)
    assert (robot.pose_age_s, robot.peer_age_s) == (0.034, 0.0612)
    assert robot.tick_rate_hz == pytest.approx(30.0, abs=0.5)
    assert robot.command_rate_hz == pytest.approx(30.0, abs=0.5)
    text = shown([robot])
    for part in ("ROS_DOMAIN_ID=7", "r0", "active", "passes", "34 ms", "61 ms", "30.0", "37.5 %", "3 (2.5 %)"):
        assert part in text
    assert "battery" not in text
    assert fleet.is_complete
    assert not fleet.is_silent


def test_a_robot_that_stands_at_its_goal_is_shown_as_that():
    (robot,) = heard(mode={"holds": "gives_way"}, sentence="gives_way: gives way to another robot").robots(100.0)
    assert robot.holds == "gives_way"
    assert "active, gives way" in shown([robot], width=230)


def test_a_robot_that_holds_says_why_in_one_sentence():
    sentence = "stale_pose: the last pose is older than the robot's pose_max_age"
    (robot,) = heard(mode={"mode": "holding", "code": "stale_pose"}, sentence=sentence).robots(100.0)
    text = shown([robot], width=230)
    assert "holding" in text
    assert sentence in text
    assert text.count("stale_pose") == 1
    (robot,) = heard(guard={"code": "estop"}, mode={"mode": "stopped", "code": "estop"}, sentence="stop").robots(100.0)
    assert "brakes: estop" in shown([robot])
    assert "estop: stop" in shown([robot])


def test_a_robot_that_falls_silent_is_told_with_its_last_mode():
    (robot,) = heard().robots(104.0)
    assert robot.is_silent
    assert robot.guard is None
    text = shown([robot])
    assert "silent, was active" in text
    assert "nothing heard for 4 s" in text
    assert "passes" not in text


def test_a_robot_of_the_fleet_file_that_was_never_heard_is_a_row():
    fleet = heard(robots=("r0", "r7"))
    robots = fleet.robots(100.0)
    assert [robot.name for robot in robots] == ["r0", "r7"]
    assert robots[1].heard_age_s is None
    assert "not heard" in shown(robots)
    assert not fleet.is_complete


@pytest.mark.parametrize(
    ("share", "voltage", "text"),
    [(0.83, 11.9, "83 %"), (float("nan"), 11.94, "11.9 V"), (float("nan"), float("nan"), "")],
)
def test_a_battery_is_a_column_if_there_is_one(share, voltage, text):
    fleet = heard()
    fleet.on_battery("r0", share, voltage)
    (robot,) = fleet.robots(100.0)
    assert robot.battery == text
    assert ("battery" in shown([robot])) == bool(text)


def test_a_process_that_began_again_counts_anew():
    fleet = heard(seconds=3.0)
    for k in range(5):
        fleet.on_mode("r0", "", MODE | {"ticks": str(10 * k)}, 101.0 + 0.5 * k)
    (robot,) = fleet.robots(103.0)
    assert robot.tick_rate_hz == pytest.approx(20.0)


def test_the_first_message_which_may_be_old_makes_no_rate():
    fleet = FleetStatus()
    fleet.on_mode("r0", "", MODE | {"ticks": "0"}, 1.0)
    fleet.on_mode("r0", "", MODE | {"ticks": "15"}, 1.01)  # half a second passed between the two
    assert fleet.robots(1.1)[0].tick_rate_hz is None
    fleet.on_mode("r0", "", MODE | {"ticks": "30"}, 1.51)
    assert fleet.robots(1.6)[0].tick_rate_hz == pytest.approx(30.0)


@pytest.mark.parametrize("values", [{}, {"mode": "active", "ticks": "many", "pose_age_s": "nan", "late_ticks": ""}])
def test_values_that_are_missing_or_no_numbers_are_shown_as_unknown(values):
    fleet = FleetStatus()
    for k in range(4):
        fleet.on_mode("r0", "", values, 1.0 + k)
    (robot,) = fleet.robots(4.5)
    assert (robot.ticks, robot.pose_age_s, robot.tick_rate_hz, robot.late_ticks) == (None,) * 4
    assert "-" in shown([robot])


def test_values_are_json_and_name_the_domain():
    fleet = heard(robots=("r7",))
    values = json.loads(json.dumps(status_values(fleet.robots(100.0), 7), allow_nan=False))
    assert (values["schema"], values["domain_id"]) == ("testudo/status/1", 7)
    assert values["robots"]["r0"]["mode"] == "active"
    assert [robot["silent"] for robot in values["robots"].values()] == [False, True]


def test_silence_names_the_domain_and_what_to_try():
    fleet = FleetStatus(("r0",))
    assert fleet.is_silent
    text = silence_sentence(5.2, 42, local=False)
    assert "for 5 s on ROS_DOMAIN_ID=42" in text
    assert "--local" in text
    assert "on this machine only" in silence_sentence(5.2, 42, local=True)


def test_every_mode_and_every_reason_of_the_guard_can_be_shown():
    assert set(MODE_STYLES) == set(Mode)
    for code in SENTENCES:
        (robot,) = heard(guard={"code": code}).robots(100.0)
        assert (f"brakes: {code}" if code else "passes") in shown([robot])


def test_the_verb_is_registered_with_ros_and_has_an_example():
    point = cli.verbs()["status"]
    assert point.extras == ["ros"]
    assert "testudo status" in cli.docstring_of(point)


@pytest.mark.parametrize("there", [True, False])
def test_a_system_ros_does_for_the_extra(monkeypatch, there):
    def no_distribution(name):
        raise cli.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(cli.metadata, "distribution", no_distribution)
    monkeypatch.setattr(cli.util, "find_spec", lambda name: object() if there else None)
    installed = cli._is_installed.__wrapped__  # without what is known of this machine
    assert installed("ros-rclpy") is there
    assert not installed("jax")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--domain", "500"], "--domain: found '500', expected a number from 0 to 232"),
        (["--fleet", "no.yaml"], "no.yaml: no such fleet file"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(words, message, tmp_path, monkeypatch, capsys):
    pytest.importorskip("rclpy", reason="ROS 2 (rclpy) is not installed")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["status", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def receive(answers, robot, *codes):
    for code in codes:
        answers.on_guard_status(robot, {"code": code}, 0.0)


def test_all_have_stopped_when_every_expected_guard_says_so():
    answers = EstopConfirmation(["r0", "r1"])
    assert not answers.all_stopped
    receive(answers, "r0", "", "estop")
    assert not answers.all_stopped
    assert unconfirmed_text(answers.answers) == "not confirmed by r1 (not heard): stop it by hand"
    receive(answers, "r1", "silence", "estop")
    assert answers.all_stopped
    assert unconfirmed_text(answers.answers) == ""


@pytest.mark.parametrize("codes", [[""], ["estop"], ["estop", ""], ["", "silence"]])
def test_a_guard_that_said_so_only_before_or_says_otherwise_has_not_confirmed(codes):
    answers = EstopConfirmation()
    receive(answers, "r0", *codes)
    assert not answers.all_stopped
    assert "r0 (its guard did not brake for it)" in unconfirmed_text(answers.answers)


def test_a_robot_whose_guard_is_dead_is_missed_even_without_a_fleet_file():
    answers = EstopConfirmation()
    receive(answers, "r0", "estop", "estop")
    assert answers.all_stopped
    answers.on_mode("r1", "drives", {"mode": "active"}, 0.0)
    assert not answers.all_stopped
    assert [(item.robot, item.stopped, item.guard, item.mode) for item in answers.answers] == [
        ("r0", True, "estop", ""),
        ("r1", False, None, "active"),
    ]


def test_nobody_heard_is_nobody_stopped():
    assert not EstopConfirmation().all_stopped
