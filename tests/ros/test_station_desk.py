"""The desk behind the station page, without ROS: stop and requests go the ways of the verbs."""

import json
import time
from types import SimpleNamespace

import pytest
from tests.deploy.station_page.page_stage import NAMES, make_fleet
from tests.ros.test_operator_requests import Client, Listener

from testudo_deploy.contract.goal_order import GoalAnswer
from testudo_deploy.station.fleet_status import EstopReply
from testudo_deploy.station.stop_channel import FOLDER_VARIABLE, StopChannel, channel_name
from testudo_nodes.station import page_stop
from testudo_nodes.station.goal import OrderAnswers
from testudo_nodes.station.operator_requests import Operator
from testudo_nodes.station.page_desk import PageDesk
from testudo_nodes.station.page_stop import BY_HAND, press_stop, stop_values
from testudo_nodes.station.quick_stop import StopOrder

DOMAIN = 89
STOPPED = {"stopped": True, "guard": "estop", "mode": "stopped", "after_s": None}  # as `stop_report` writes it


@pytest.fixture
def order(tmp_path, monkeypatch):
    """Return the order of a fleet of two; the program of `testudo estop` is noted in place of being run."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "stop"))
    monkeypatch.setattr(page_stop, "_hurry", lambda: None)
    (tmp_path / "fleet.yaml").write_text("robots:\n  r0: {}\n  r1: {}\n")
    return StopOrder(tmp_path / "fleet.yaml", wait=5.0, domain=DOMAIN, local=True)


@pytest.fixture
def program(monkeypatch):
    """Return the calls of the program; its answer is the attribute ``answer`` of the list."""

    class Calls(list):
        answer = (0, {"robots": dict.fromkeys(("r0", "r1"), STOPPED)}, "")

        def __call__(self, order, words):
            self.append(words)
            return self.answer

    calls = Calls()
    monkeypatch.setattr(page_stop, "_run_program", calls)
    return calls


def resident(*, stopped):
    robots = {name: {"stopped": stopped, "guard": "estop" if stopped else "", "after_s": 0.1} for name in ("r0", "r1")}
    pressed = []
    ask = lambda word: pressed.append(word) or {"robots": robots}  # noqa: E731
    return StopChannel(channel_name(DOMAIN, local=True), press=pressed.append, ask=ask), pressed


def test_the_resident_process_is_pressed_and_its_confirmations_are_enough(order, program):
    channel, pressed = resident(stopped=True)
    with channel:
        found = press_stop(order)
    assert (pressed, program) == (["press"], [])
    assert (found["confirmed"], found["sentence"]) == (True, "All 2 guards confirmed the stop within 100 ms.")


@pytest.mark.parametrize("with_resident", [True, False])
def test_without_all_confirmations_the_program_of_the_verb_follows(order, program, with_resident):
    channel, pressed = resident(stopped=False)
    if with_resident:
        with channel:
            found = press_stop(order)
        assert pressed == ["press"]
    else:
        found = press_stop(order)
    assert program == [()]
    assert found["confirmed"]


def test_a_way_that_fails_costs_no_stop(order, program, monkeypatch):
    monkeypatch.setattr(page_stop, "press_residents", lambda order: order.nothing)
    assert press_stop(order)["confirmed"]
    assert program == [()]
    program.answer = (None, None, "`testudo estop` did not end: TimeoutExpired")
    found = press_stop(order)
    assert not found["confirmed"]
    assert found["sentence"] == f"Nobody confirmed: `testudo estop` did not end: TimeoutExpired. {BY_HAND}"


def test_every_robot_that_did_not_confirm_is_named_and_silence_is_said_plainly(order):
    found = stop_values([EstopReply("r0", True, "estop", "stopped"), EstopReply("r1", False, None, "")], order)
    assert not found["confirmed"]
    assert found["sentence"] == "Not confirmed by r1 (not heard): stop it by hand."
    for nobody in ([], [EstopReply("r0", False, None, "")]):
        found = stop_values(nobody, order)
        assert not found["confirmed"]
        assert found["sentence"].startswith("Nobody answered: no robot was heard")
        assert found["sentence"].endswith(BY_HAND)


class Site:
    """A desk with stand-ins for robots and task node."""

    def __init__(self, tmp_path, clients=(), *, answers=True, **fleet):
        self.fleet = make_fleet(**fleet)
        self.desk = PageDesk(self.fleet, {}, StopOrder(tmp_path / "fleet.yaml", domain=DOMAIN), tmp_path)
        self.operator = Operator(Listener(dict(clients)), None, 0.3)
        self.heard, self.orders, self._answers = OrderAnswers(), [], answers

    def publish(self, order):
        self.orders.append(order)
        if self._answers:
            (robot,) = order.goals_world
            text = GoalAnswer(order.order, False, (f"{robot}: is too near",)).encode().decode()
            self.heard.on_answer(SimpleNamespace(data=text))

    def ask(self, **values):
        """Return the answers to a request."""
        number, end_s = self.desk.request(json.dumps(values).encode()), time.monotonic() + 5.0
        while time.monotonic() < end_s:
            self.desk.advance(self.operator, self.publish, self.heard, lambda robot: None)
            found = [one for one in self.desk.answers if one["number"] == number]
            if len(found) == max(len(values.get("robots", ())), 1):
                return [(one["robot"], one["done"], one["sentence"]) for one in found]
            time.sleep(0.01)
        raise AssertionError("no answer")


def test_requests_go_to_the_services_of_the_verbs_side_by_side(tmp_path):
    site = Site(tmp_path, {"/r0/policy/stop": Client(0.0, 1), "/r1/policy/stop": Client(None, 1)})
    found = {robot: (done, said) for robot, done, said in site.ask(verb="pause", robots=["r1", "r0"])}
    assert found["r0"] == (True, "granted")
    assert found["r1"] == (False, "/r1/policy/stop was not found in this domain within 0.3 s")
    site = Site(tmp_path, {"/r2/guard/rearm": Client(0.0, 9)})
    assert site.ask(verb="rearm", robots=["r2"]) == [("r2", False, "not yet")]


def test_a_click_sends_the_order_of_the_verb_and_its_refusal_comes_back(tmp_path):
    site = Site(tmp_path)
    assert site.ask(verb="goal", robots=["r1"], place=[0.5, -0.25]) == [("r1", False, "r1: is too near")]
    (order,) = site.orders
    assert (order.goals_world, order.repeat) == ({"r1": ((0.5, -0.25),)}, False)
    assert [said for _, _, said in site.ask(verb="home", robots=list(NAMES))] == [
        f"{name}: is too near" for name in NAMES
    ]
    assert site.orders[1].goals_world == {"r0": ()}


def test_an_order_that_nobody_answers_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("testudo_nodes.station.page_desk._ORDER_S", 0.3)
    site = Site(tmp_path, answers=False)
    ((_, done, said),) = site.ask(verb="goal", robots=["r1"], place=[0.5, -0.25])
    assert (done, "nobody answered" in said) == (False, True)
    assert len({order.order for order in site.orders}) == 1  # sent again, it is the same one


def test_a_request_that_fails_leaves_the_desk_at_work(tmp_path):
    site = Site(tmp_path)  # its listener knows no service: a KeyError
    ((_, done, said),) = site.ask(verb="start", robots=["r0"])
    assert (done, said.startswith("the station could not do it: KeyError")) == (False, True)
    assert site.ask(verb="goal", robots=["r1"], place=[0.5, -0.25]) == [("r1", False, "r1: is too near")]


def test_the_end_of_the_stop_is_in_the_answers_of_every_window(tmp_path, order, program):
    site = Site(tmp_path)
    site.desk.stop()
    (answer,) = site.desk.answers
    assert (answer["verb"], answer["done"]) == ("stop", True)
