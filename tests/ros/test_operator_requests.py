"""Requests of `testudo arm`, `start` and `rearm` go to all robots at the same time; ROS is replaced by a stand-in."""

import time
from types import SimpleNamespace

from testudo_nodes.station.operator_requests import Operator, side_by_side

SILENT_S, ANSWER_S = 0.4, 0.1


class Client:
    """A service that answers some time after the call, grants from its n-th call on, or is never found."""

    def __init__(self, answer_s, grants_at):
        self._answer_s, self._grants_at, self.calls = answer_s, grants_at, 0

    def service_is_ready(self):
        return self._answer_s is not None

    def call_async(self, request):
        self.calls += 1
        due_s, granted = time.monotonic() + self._answer_s, self.calls >= self._grants_at
        answer = SimpleNamespace(success=granted, message="granted" if granted else "not yet")
        return SimpleNamespace(done=lambda: time.monotonic() >= due_s, result=lambda: answer)


class Listener:
    """Receives nothing, and returns as soon as it is enough."""

    def __init__(self, clients):
        self.node = self
        self._clients = clients

    def create_client(self, kind, service):
        return self._clients[service]

    def destroy_client(self, client):
        pass

    def listen(self, seconds, enough=lambda: False):
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and not enough():
            time.sleep(0.002)


def asked(clients, **options):
    """Return the replies of services by name, and how long all of them took [s]."""
    listener = Listener(clients)
    operator = Operator(listener, None, SILENT_S)
    begin_s = time.monotonic()
    replies = side_by_side(listener, {name: operator._call(object, name, None, **options) for name in clients})
    return replies, time.monotonic() - begin_s


def test_silent_robots_do_not_hold_up_each_other_nor_those_that_answer():
    clients = {"r0": Client(None, 1), "r1": Client(ANSWER_S, 1), "r2": Client(None, 1), "r3": Client(9.0, 1)}
    clients |= {f"more{k}": Client(None, 1) for k in range(8)}
    replies, took_s = asked(clients)
    assert list(replies) == list(clients)
    assert replies["r1"] == (True, "granted")
    assert replies["r0"] == (False, f"r0 was not found in this domain within {SILENT_S:g} s")
    assert replies["r3"] == (False, f"r3 did not answer within {SILENT_S:g} s")
    assert took_s < 3 * SILENT_S  # one after another, eleven silent robots would take eleven times as long


def test_a_refusal_is_an_answer_unless_the_call_is_to_be_repeated():
    assert asked({"r0": Client(0.0, 2)})[0] == {"r0": (False, "not yet")}
    late = asked({"r0": Client(0.0, 9)}, until_granted=True)[0]
    assert late == {"r0": (False, "not yet")}
