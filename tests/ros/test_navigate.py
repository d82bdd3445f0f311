"""nav2's action for each robot, with a stand-in for its types, which are not among the packages of the tests."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from testudo_deploy.contract.goal_order import GO, GO_ON, PAUSE, GoalAnswer
from testudo_deploy.station.navigation import RobotNavigation
from testudo_hardware.errors import TestudoError

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]


class Action:
    """The parts of `nav2_msgs.action.NavigateToPose` of Kilted that are used."""

    class Feedback:
        navigation_time, distance_remaining = None, 0.0

    class Result:
        error_code, error_msg = 0, ""


def request(x, y, frame="world", tree=""):
    place = SimpleNamespace(position=SimpleNamespace(x=x, y=y))
    return SimpleNamespace(pose=SimpleNamespace(header=SimpleNamespace(frame_id=frame), pose=place), behavior_tree=tree)


class Handle:
    """A goal handle as rclpy gives it."""

    def __init__(self, asked, callbacks):
        self.request, self.is_cancel_requested, self.state, self.feedback = asked, False, "accepted", []
        self.publish_feedback, self._callbacks, self._task = self.feedback.append, callbacks, None

    def execute(self):
        self.state, self._task = "executing", self._callbacks["execute_callback"](self)
        self._task.send(None)

    def finish(self, state):
        self.state = state

    succeed, abort, canceled = (lambda self, state=state: self.finish(state) for state in ("ok", "aborted", "canceled"))

    @property
    def result(self):
        """Return the result that the execution gives now."""
        with pytest.raises(StopIteration) as end:
            self._task.send(None)
        return end.value.value


@pytest.fixture
def stage():
    """Return a server with its robot, the orders that it sent, and how to give it a goal."""
    from testudo_nodes.station.navigate_servers import NavigateServer

    made = SimpleNamespace(sent=[], said=[])

    def make_server(node, action, topic, **callbacks):
        made.topic, made.callbacks = topic, callbacks

    logger = SimpleNamespace(info=made.said.append, warning=made.said.append)
    node = SimpleNamespace(get_logger=lambda: logger)
    made.robot = RobotNavigation("r0", "world")
    made.server = NavigateServer(node, made.robot, "r0", Action, made.sent.append, make_server)

    def give(*place):
        handle = Handle(request(*place), made.callbacks)
        made.callbacks["handle_accepted_callback"](handle)
        return handle

    made.give = give
    return made


def test_a_goal_is_driven_with_feedback_and_succeeds(stage):
    assert stage.topic == "/r0/navigate_to_pose"
    handle = stage.give(1.0, 0.5)
    stage.server.step(10.0)
    (order,) = stage.sent
    assert (order.goals_world, order.act) == ({"r0": ((1.0, 0.5),)}, GO)
    stage.robot.hear_answer(GoalAnswer(order.order, True, ("r0: goes to (1.00, 0.50)",)), 10.1)
    stage.robot.see((1.0, 0.0))
    stage.server.step(10.2)
    assert handle.feedback[-1].distance_remaining == pytest.approx(0.5)
    assert handle.feedback[-1].navigation_time.nanosec == pytest.approx(2e8)
    stage.robot.hear_holds("arrived", 12.0)
    stage.server.step(12.1)
    assert (handle.state, handle.result.error_code) == ("ok", 0)
    assert len(stage.sent) == 1
    stage.server.step(12.2)  # nothing more is sent
    assert len(handle.feedback) == 2


def test_a_refusal_aborts_with_its_sentence(stage):
    handle = stage.give(9.0, 0.5)
    stage.server.step(10.0)
    stage.robot.hear_answer(GoalAnswer(stage.sent[0].order, False, ("r0: goal (9.00, 0.50): found x = 9.00 m",)), 10.1)
    stage.server.step(10.2)
    assert handle.state == "aborted"
    result = handle.result
    assert (result.error_code, result.error_msg) == (9000, "r0: goal (9.00, 0.50): found x = 9.00 m")


def test_a_cancel_pauses_and_the_next_goal_goes_on(stage):
    handle = stage.give(1.0, 0.5)
    stage.server.step(10.0)
    handle.is_cancel_requested = True
    stage.server.step(10.2)
    assert (handle.state, stage.sent[-1].act) == ("canceled", PAUSE)
    stage.give(0.0, 0.5)
    stage.server.step(11.0)
    stage.robot.hear_answer(GoalAnswer(stage.sent[-1].order, True, ("r0: goes to (0.00, 0.50)",)), 11.1)
    stage.server.step(11.2)
    assert [order.act for order in stage.sent[-2:]] == [GO, GO_ON]


def test_a_second_goal_replaces_the_first(stage):
    first, second = stage.give(1.0, 0.5), stage.give(0.0, 0.5)
    assert (first.state, second.state) == ("aborted", "executing")
    assert first.result.error_msg == "another goal of this action replaced this one"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (request(0.0, 0.0, frame="map"), "found the frame 'map'"),
        (request(0.0, 0.0, tree="spin.xml"), "behavior_tree: found 'spin.xml', expected none"),
        (request(0.0, 0.0), ""),
    ],
)
def test_a_goal_in_another_frame_is_rejected(stage, asked, says):
    from rclpy.action import GoalResponse

    answered = stage.callbacks["goal_callback"](asked)
    assert answered == (GoalResponse.REJECT if says else GoalResponse.ACCEPT)
    assert says in "".join(stage.said)


@pytest.mark.skipif(find_spec("nav2_msgs") is not None, reason="nav2_msgs is installed")
def test_without_nav2_it_says_what_to_install():
    from testudo_nodes.station.navigate import navigate_action

    with pytest.raises(TestudoError, match=r"nav2_msgs is not within reach .*apt install ros-\$ROS_DISTRO-nav2-msgs"):
        navigate_action()
