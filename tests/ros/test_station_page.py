"""The station page of a running fleet over real DDS: it shows robots, gives goals, and its stop reaches the guards."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.station_page.access import TOKEN_HEADER

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,  # `test_station_desk.py` has what the page does with a press, a goal and silence, without ROS
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]
LIMIT_S = 60.0


class Page:
    """What a browser does, without one."""

    def __init__(self, address):
        self.host, _, self._token = address.removeprefix("http://").partition("/#")

    def ask(self, method, path, values=None):
        """Return status and JSON values of an answer."""
        body = None if values is None else json.dumps(values)
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT_S)
        connection.request(method, path, body, self._headers() | {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def pictures(self):
        """Yield what the stream brings: first the fleet, then pictures."""
        connection = http.client.HTTPConnection(self.host, timeout=LIMIT_S)
        connection.request("GET", "/events", headers=self._headers())
        stream = connection.getresponse()
        assert stream.status == 200, stream.read()
        try:
            while line := stream.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            stream.close()  # the socket, too: the server closes each connection
            connection.close()

    def wait(self, wanted):
        """Return the first picture that is wanted."""
        end_s = time.monotonic() + LIMIT_S
        for picture in self.pictures():
            if "sent_s" in picture and wanted(picture):
                return picture
            assert time.monotonic() < end_s, picture
        raise AssertionError("the stream ended")

    def answer(self, number):
        """Return the answer to a request."""
        found = self.wait(lambda picture: any(one["number"] == number for one in picture["answers"]))
        return next(one for one in found["answers"] if one["number"] == number)

    def request(self, **values):
        """Return the answer to a new request."""
        status, found = self.ask("POST", "/request", values)
        assert status == 202, found
        return self.answer(found["number"])

    def _headers(self):
        return {TOKEN_HEADER: self._token, "Origin": f"http://{self.host}"}


@contextmanager
def opened(fleet, domain_id, runs):
    """Yield the page of the program `testudo station`."""
    words = ["station", fleet.file, "--port", "0", "--domain", domain_id, "--local", "--runs", runs]
    with subprocess.Popen(
        [sys.executable, "-m", "testudo_deploy.cli", *map(str, words)], stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            yield Page(program.stdout.readline().partition("station page: ")[2].strip())
            program.send_signal(signal.SIGINT)
            assert program.wait(20) == 130
        finally:
            program.kill()


def by_name(picture):
    return {robot["name"]: robot for robot in picture["robots"]}


def test_a_fleet_is_shown_led_and_stopped_by_the_page(tmp_path):
    fleet = make_task_fleet(tmp_path, "navigation", 2)
    save_fleet(replace(fleet, orders=True), fleet.file)
    fleet, states = load_fleet(fleet.file), []
    options = {"run_folder": tmp_path / "runs" / "one", "duration_s": 300.0, "lock_step": True}
    run = threading.Thread(target=lambda: states.append(run_fleet(fleet, show=states.append, **options)), daemon=True)
    run.start()
    while not (states and states[-1].started) and run.is_alive():
        time.sleep(0.1)
    with opened(fleet, states[-1].domain_id, tmp_path / "runs") as page:
        about = next(page.pictures())
        assert (list(about["robots"]), about["orders"]) == (["r0", "r1"], True)
        found = page.wait(lambda picture: all(one["mode"] == "active" and one["place"] for one in picture["robots"]))
        assert all(one["reserved"] and one["goal"] and one["shown_fresh"] for one in found["robots"])
        assert found["task"]["scenario"] == "navigation"
        assert found["stop"] == {"answers": True, "pressed": False, "sources": []}

        refused = page.request(verb="goal", robots=["r0"], place=[9.0, 0.0])
        assert not refused["done"]
        assert "r0: goal (9.00, 0.00): found x = 9.00 m" in refused["sentence"]
        taken = page.request(verb="goal", robots=["r0"], place=[1.2, -0.6])
        assert (taken["done"], taken["sentence"]) == (True, "r0: goes to (1.20, -0.60)")
        page.wait(lambda picture: (by_name(picture)["r0"]["goal"] or {}).get("place") == [1.2, -0.6])
        assert page.request(verb="pause", robots=["r1"])["done"]
        page.wait(lambda picture: by_name(picture)["r1"]["mode"] == "armed")
        assert page.request(verb="start", robots=["r1"])["done"]

        status, stopped = page.ask("POST", "/stop")
        assert (status, stopped["confirmed"], set(stopped["robots"])) == (200, True, {"r0", "r1"})
        assert all(one["stopped"] for one in stopped["robots"].values())
        found = page.wait(lambda picture: all(one["mode"] == "stopped" for one in picture["robots"]))
        assert all(one["guard"] == "estop" and "emergency stop" in one["why"] for one in found["robots"])
        page.wait(lambda picture: picture["stop"]["pressed"])
        assert page.request(verb="release")["done"]
        assert page.request(verb="rearm", robots=["r0"])["done"]
        page.wait(lambda picture: by_name(picture)["r0"]["mode"] == "armed")  # it drives when it is started, not before

        (recorded,) = page.ask("GET", "/runs")[1]["runs"]
        assert (recorded["name"], recorded["severity"]) == ("one", "doubt")  # it is being recorded
    run.join(0.0)


def test_without_a_fleet_the_page_says_that_nobody_answered(tmp_path):
    from testudo_deploy.launch.child_processes import free_domain_id

    fleet = make_task_fleet(tmp_path, "navigation", 2)
    with opened(fleet, free_domain_id(), tmp_path) as page:
        found = page.wait(lambda _: True)
        assert [(one["tone"], one["place"]) for one in found["robots"]] == [("silent", None)] * 2
        assert not found["stop"]["answers"]
        _, stopped = page.ask("POST", "/stop")
        assert not stopped["confirmed"]
        assert stopped["sentence"].startswith("Nobody answered: no robot was heard")
        assert stopped["sentence"].endswith("Stop the robots by hand.")
