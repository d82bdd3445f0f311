"""Formations: places that no two robots touch on, about their centre; and the words of `testudo goal`."""

import itertools
import math
from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.station.formations import Formation, formation_places
from testudo_deploy.station.order_words import InFormation, Wants, order_of
from testudo_hardware.errors import TestudoError


@pytest.mark.parametrize("formation", Formation)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_neighbours_are_the_spacing_apart_and_no_two_are_nearer(formation, count):
    places = formation_places(formation, count, (0.4, -0.2), 0.6, math.radians(30))
    apart = [math.dist(first, second) for first, second in itertools.combinations(places, 2)]
    assert len(places) == count
    assert min(apart, default=0.6) == pytest.approx(0.6)
    assert [sum(axis) / count for axis in zip(*places, strict=True)] == pytest.approx([0.4, -0.2])


def test_a_formation_looks_to_its_heading_and_keeps_the_height_of_its_centre():
    line = formation_places(Formation.LINE, 2, (0.0, 0.0), 1.0, math.radians(90))  # to y: side by side along x
    assert line == (pytest.approx((-0.5, 0.0)), pytest.approx((0.5, 0.0)))
    wedge = formation_places(Formation.WEDGE, 3, (0.0, 0.0, 1.2), 1.0, 0.0)
    assert max(wedge)[:2] == pytest.approx((2 * math.sqrt(0.5) / 3, 0.0))  # the tip is ahead
    assert {place[2] for place in wedge} == {1.2}


@pytest.mark.parametrize(
    "wrong", [(0, (0.0, 0.0), 0.5, 0.0), (3, (0.0, math.nan), 0.5, 0.0), (3, (0.0, 0.0), 0.0, 0.0)]
)
def test_what_is_no_formation_is_refused(wrong):
    with pytest.raises(TestudoError, match="formation: found"):
        formation_places(Formation.LINE, *wrong)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return replace(make_tiny_fleet(tmp_path_factory.mktemp("words"), 3), orders=True)


def test_the_words_of_a_formation_are_one_order_for_all_robots(fleet):
    order = order_of(fleet, "all", (0.0, 0.0), Wants(formation=InFormation("line")), "1")
    assert order.exchange
    assert list(order.goals_world) == list(fleet.names)
    places = [goals[0] for goals in order.goals_world.values()]
    assert math.dist(*places[:2]) > 0.2  # as far apart as goals must be, though no spacing was given
    assert order_of(fleet, "r0,r2", (), Wants(pause=True), "2").act == "pause"
    home = order_of(fleet, "all", (), Wants(home=True), "3")
    assert home.goals_world == dict.fromkeys(fleet.names, ())


@pytest.mark.parametrize(
    ("robot", "places", "wants", "says"),
    [
        ("all", (0.0, 0.0), Wants(), "found all with a place"),
        ("r0", (), Wants(), "found both or none of a place and --home"),
        ("r0", (0.0, 0.0), Wants(pause=True), "found both or none of a place and --home"),
        ("r0", (), Wants(pause=True, go_on=True), "found --pause and --go-on, expected one of them"),
        ("r0", (0.0, 0.0), Wants(patrol=True), "--patrol: found 1 place"),
        ("all", (), Wants(home=True, patrol=True), "found --patrol with --home"),
        ("all", (0.0, 0.0, 1.0, 1.0), Wants(formation=InFormation("line")), "--formation: found 2 places"),
        ("r0", (0.0, 0.0, 1.0), Wants(), "found 3 numbers, expected 2 for each place of r0"),
        ("r0,r0", (), Wants(home=True), "expected each robot once"),
        ("r0", (math.inf, 0.0), Wants(), "not finite"),
        ("r9", (0.0, 0.0), Wants(), "r9"),
    ],
)
def test_words_that_do_not_fit_are_refused_in_one_sentence(fleet, robot, places, wants, says):
    with pytest.raises(TestudoError, match=says):
        order_of(fleet, robot, places, wants, "1")
