"""A goal of nav2's action becomes an order, and the answers of the fleet become its outcome."""

import pytest

from testudo_deploy.contract.goal_order import GO, GO_ON, PAUSE, GoalAnswer, GoalOrder
from testudo_deploy.station.navigation import ARRIVED, DRIVES, REFUSED, REPLACED, RobotNavigation


def answer(order, *, accepted=True, says="r0: goes to (1.00, 0.50)"):
    return GoalAnswer(order, accepted, (says,))


@pytest.fixture
def robot():
    robot = RobotNavigation("r0", "world")
    robot.begin((1.0, 0.5), "a", 10.0)
    return robot


@pytest.mark.parametrize(
    ("frame", "place", "says"),
    [
        ("map", (0.0, 0.0), "r0: goal: found the frame 'map', expected 'world', that of the fleet"),
        ("world", (float("nan"), 0.0), "r0: goal: found [nan, 0.0], expected finite numbers"),
        ("world", (0.0, 0.0), ""),
    ],
)
def test_a_goal_that_is_none_is_refused_before_anybody_is_asked(frame, place, says):
    assert RobotNavigation("r0", "world").fault(frame, place) == says


def test_an_accepted_goal_is_repeated_until_the_answer_and_ends_with_the_arrival(robot):
    assert robot.to_send(10.2) == GoalOrder("a", {"r0": ((1.0, 0.5),)}, act=GO)
    robot.hear_answer(answer("b"), 10.3)  # to somebody else
    assert robot.to_send(10.4) is not None
    robot.hear_answer(answer("a"), 10.5)
    assert robot.to_send(10.6) is None
    robot.hear_holds("arrived", 10.7)  # still at the goal before
    robot.see((0.0, 0.5))
    assert robot.progress(12.0).state == DRIVES
    assert robot.progress(12.0).distance_m == pytest.approx(1.0)
    assert robot.progress(12.0).time_s == pytest.approx(2.0)
    robot.hear_holds("", 13.0)
    assert robot.progress(13.0).state == DRIVES
    robot.hear_holds("arrived", 14.0)
    assert robot.progress(14.0).state == ARRIVED


def test_a_refusal_is_passed_on_with_its_sentence(robot):
    robot.hear_answer(answer("a", accepted=False, says="r0: goal (1.00, 0.50): is 0.10 m from the goal of r1"), 10.5)
    assert robot.progress(11.0).state == REFUSED
    assert robot.progress(11.0).sentence == "r0: goal (1.00, 0.50): is 0.10 m from the goal of r1"
    robot.hear_holds("arrived", 20.0)
    assert robot.progress(20.0).state == REFUSED


def test_without_a_task_node_a_goal_fails_after_a_while(robot):
    assert robot.to_send(19.9) is not None
    assert robot.to_send(20.1) is None
    assert robot.progress(20.1).sentence == "r0: nobody answered; does the fleet run, with `orders: true`?"


@pytest.mark.parametrize(
    ("robots", "act", "accepted", "state"),
    [
        ({"r0": ((0.0, 0.0),)}, GO, True, REPLACED),
        ({"r0": ((0.0, 0.0),)}, GO, False, DRIVES),
        ({"r1": ((0.0, 0.0),)}, GO, True, DRIVES),
        ({"r0": ()}, PAUSE, True, DRIVES),
    ],
)
def test_another_order_for_the_robot_replaces_the_goal(robot, robots, act, accepted, state):
    robot.hear_answer(answer("a"), 10.5)
    robot.hear_order(GoalOrder("other", robots, act=act))
    robot.hear_answer(answer("other", accepted=accepted), 11.0)
    assert robot.progress(11.0).state == state


def test_a_cancelled_robot_stands_until_the_next_goal(robot):
    robot.hear_answer(answer("a"), 10.5)
    assert robot.cancel("b") == GoalOrder("b", {"r0": ()}, act=PAUSE)
    assert robot.to_send(11.0) is None
    robot.begin((0.0, 0.0), "c", 12.0)
    assert robot.to_send(12.1).goals_world == {"r0": ((0.0, 0.0),)}
    assert robot.go_on("d") == GoalOrder("d", {"r0": ()}, act=GO_ON)
