"""A station page without ROS: robots as the tests want them, and a desk that notes what it is asked."""

import itertools
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.shield.arena import Arena, Ball, Block
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_deploy.station.markers import GoalView
from testudo_deploy.station.robot_markers import RobotView
from testudo_deploy.station_page.board import Board
from testudo_deploy.station_page.fleet_picture import fleet_values, picture
from testudo_deploy.station_page.page_request import read_request
from testudo_deploy.station_page.server import PageServer
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")
NAMES = ("r0", "r1", "r2", "r3")
PLACES = {"r0": (-0.9, 0.4), "r1": (0.3, 0.1), "r2": (0.9, -0.5), "r3": (-0.3, -0.6)}
YAWS = {"r0": 0.3, "r1": 2.2, "r2": -1.2, "r3": 0.0}
ARENA = Arena((-1.6, -1.0), (1.6, 1.0), (Ball((-0.2, 0.55), 0.15), Block((0.75, 0.45), (0.25, 0.08), 0.5)))
GOALS = (GoalView("r0", (1.2, 0.7), 0.05, False), GoalView("r1", (-1.1, -0.3), 0.05, False))


def make_fleet(*, orders=True, robots=NAMES):
    places = tuple(FleetRobot(name, SPEC.name, PLACES[name], YAWS[name], PLACES[name], SPEC) for name in robots)
    return Fleet(Path("fleet.yaml"), Path("policy.onnx"), "0", places, orders=orders)


def heard(now_s, *, modes=None, guards=None, robots=NAMES):
    """Return the status of robots that are active, with other modes as (mode, code, sentence), and guards' codes."""
    status = FleetStatus(robots)
    for name in robots:
        mode, code, sentence = (modes or {}).get(name, ("active", "", "active"))
        values = {"mode": mode, "code": code, "pose_age_s": "0.034", "peer_age_s": "0.061", "ticks": "9"}
        status.on_mode(name, sentence, values, now_s)
        status.on_guard_status(name, {"code": (guards or {}).get(name, ""), "commands": "9"}, now_s)
    return status


def make_views(fleet, *, age_s=0.02):
    return [RobotView(robot.name, robot.spec, PLACES[robot.name], YAWS[robot.name], age_s) for robot in fleet.robots]


class Desk:
    """Records stops and requests; posts pictures while it is switched on."""

    def __init__(self, fleet=None, **shown):
        self.fleet_file, self.shown = fleet or make_fleet(), shown
        self.board, self.stops, self.requests = Board(), 0, []
        self.stop_answer = {
            "confirmed": True,
            "sentence": f"All {len(NAMES)} guards confirmed the stop within 120 ms.",
            "robots": {name: {"stopped": True, "guard": "estop", "after": 0.1} for name in NAMES},
        }
        self.pressed, self.answers, self.run_list, self.reports = False, [], [], {}
        self._numbers, self._ends = itertools.count(1), threading.Event()

    def fleet(self):
        return fleet_values(self.fleet_file, ARENA, 7)

    def stop(self):
        self.stops += 1
        self.pressed = self.stop_answer["confirmed"]
        return self.stop_answer

    def request(self, data):
        found = read_request(data, self.fleet_file.names, orders=self.fleet_file.orders)
        self.requests.append(found)
        return next(self._numbers)

    def runs(self):
        return self.run_list

    def report(self, run):
        return self.reports.get(run)

    def post(self):
        """Post a picture of this moment."""
        now_s = time.monotonic()
        status = self.shown.get("status") or heard(
            now_s, guards=dict.fromkeys(NAMES, "estop") if self.pressed else None
        )
        views = self.shown.get("views") or make_views(self.fleet_file)
        more = {
            "stop": {"answers": True, "pressed": self.pressed, "sources": ["the station page"] if self.pressed else []},
            "task": {"scenario": "navigation", "state": "running", "time": 12.4, "waits": [], "age": 0.1},
            "answers": [{**answer, "age": 1.0} for answer in self.answers],
            "battery_age": {},
        }
        values = picture(views, status.robots(now_s), GOALS, now_s=now_s, more=more)
        self.board.post(json.dumps(values, allow_nan=False))

    def answer(self, number, robot, sentence, *, done):
        self.answers.append({"number": number, "verb": "goal", "robot": robot, "done": done, "sentence": sentence})

    @contextmanager
    def posting(self):
        """Post pictures five times a second; `pause` and `go_on` stop and start it."""
        self._ends.clear()
        self.is_paused = False
        thread = threading.Thread(target=self._post, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            thread.join()

    def _post(self):
        while not self._ends.wait(0.1):
            if not self.is_paused:
                self.post()


@contextmanager
def served(desk, token=None):
    """Yield the server of a desk, which serves."""
    with PageServer(desk, 0, token) as server, desk.posting():
        yield server


__all__ = [
    "ARENA",
    "GOALS",
    "NAMES",
    "PLACES",
    "SPEC",
    "Desk",
    "heard",
    "make_fleet",
    "make_views",
    "replace",
    "served",
]
