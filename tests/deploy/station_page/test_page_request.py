"""Requests of a browser are read strictly."""

import json

import pytest

from testudo_deploy.station_page.page_request import PageRequest, PageRequestError, read_request

NAMES = ("r0", "r1")


def read(orders=True, **values):
    return read_request(json.dumps(values).encode(), NAMES, orders=orders)


def test_good_requests():
    assert read(verb="release") == PageRequest("release")
    assert read(verb="start", robots=["r0", "r1"]) == PageRequest("start", ("r0", "r1"))
    assert read(verb="goal", robots=["r1"], place=[1, -0.5]) == PageRequest("goal", ("r1",), (1.0, -0.5))


REFUSED = {
    "unknown verb": ({"verb": "land"}, "verb: found 'land', expected one of"),
    "unhashable verb": ({"verb": {}}, "verb: found"),
    "stop is none": ({"verb": "stop"}, "verb: found 'stop'"),
    "nobody": ({"verb": "start"}, "robots: found"),
    "a stranger": ({"verb": "start", "robots": ["r9"]}, "robots: found"),
    "unhashable": ({"verb": "start", "robots": [{}]}, "robots: found"),
    "twice": ({"verb": "start", "robots": ["r0", "r0"]}, "expected each once"),
    "further key": ({"verb": "start", "robots": ["r0"], "now": True}, "now: not a key"),
    "two with a place": ({"verb": "goal", "robots": ["r0", "r1"], "place": [0, 0]}, "found 2 with a place"),
    "no place": ({"verb": "goal", "robots": ["r0"]}, "place: expected two numbers"),
    "three": ({"verb": "goal", "robots": ["r0"], "place": [0, 0, 0]}, "place: expected two numbers"),
    "a truth value": ({"verb": "goal", "robots": ["r0"], "place": [True, 0]}, "place: expected two numbers"),
    "no number": ({"verb": "goal", "robots": ["r0"], "place": [float("nan"), 0]}, "place: expected two numbers"),
    "too large": ({"verb": "goal", "robots": ["r0"], "place": [10**400, 0]}, "place: expected two numbers"),
}


@pytest.mark.parametrize(("values", "sentence"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused(values, sentence):
    with pytest.raises(PageRequestError, match=sentence):
        read(**values)


@pytest.mark.parametrize("verb", ["goal", "home"])
def test_a_fleet_without_orders_takes_no_goals(verb):
    with pytest.raises(PageRequestError, match="orders: true"):
        read(orders=False, verb=verb, robots=["r0"], place=[0, 0])
