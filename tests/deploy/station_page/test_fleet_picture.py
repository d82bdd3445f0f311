"""The picture of a fleet: what is old is never given as present, and every reason is a sentence."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.deploy.station_page.page_stage import ARENA, GOALS, NAMES, PLACES, heard, make_fleet, make_views

from testudo_deploy.shield.arena import Capsule
from testudo_deploy.station.fleet_status import SILENT_S
from testudo_deploy.station_page.fleet_picture import (
    BAD,
    DOUBT,
    GOOD,
    REST,
    SILENT,
    fleet_values,
    outline_of,
    picture,
    why_of,
)
from testudo_deploy.supervision.modes import Mode

REASONS = ("armed", "shield_braked: no row", "new: unheard of")


def shown(now_s=100.0, *, views=None, later_s=0.0, **status):
    """Return the robots of a picture by name, of messages that were heard ``later_s`` before."""
    fleet = make_fleet()
    found = picture(
        views or make_views(fleet), heard(now_s, **status).robots(now_s + later_s), GOALS, now_s=now_s, more={}
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return {robot["name"]: robot for robot in found["robots"]}


def test_robots_are_shown_with_place_ages_and_goal():
    robot = shown()["r0"]
    assert (robot["place"], robot["tone"], robot["why"]) == (list(PLACES["r0"]), GOOD, "")
    assert (robot["pose_age"], robot["peer_age"]) == (0.034, 0.061)
    assert robot["goal"] == {"name": "r0", "place": [1.2, 0.7], "tolerance": 0.05, "reached": False}
    assert robot["shown_fresh"]


def test_a_robot_that_falls_silent_is_no_longer_as_it_was():
    robot = shown(later_s=SILENT_S + 1)["r0"]
    assert (robot["tone"], robot["why"], robot["code"], robot["guard"]) == (SILENT, "nothing heard for 3 s", "", None)
    assert robot["pose_age"] == pytest.approx(3.034)
    assert robot["tick_rate"] is None


def test_an_old_place_is_marked_and_ages_go_on_between_two_messages():
    views = [replace(view, pose_age_s=0.7) for view in make_views(make_fleet())]
    robot = shown(views=views, later_s=0.4)["r1"]
    assert not robot["shown_fresh"]
    assert robot["pose_age"] == pytest.approx(0.434)
    unseen = [replace(view, position_world=None, pose_age_s=math.inf) for view in make_views(make_fleet())]
    assert shown(views=unseen)["r1"]["place"] is None


@pytest.mark.parametrize("mode", [*Mode, "unheard_of"])
def test_only_a_robot_that_drives_is_good(mode):
    robot = shown(modes={"r0": (mode, "", "")})["r0"]
    assert (robot["tone"] == GOOD) == (mode == Mode.ACTIVE)
    expected = {Mode.FAULT: BAD, Mode.STOPPED: BAD, Mode.EMERGENCY: BAD, "unheard_of": BAD, Mode.HOLDING: DOUBT}
    assert robot["tone"] == expected.get(mode, robot["tone"])
    assert shown(modes={"r0": (Mode.ARMED, "", "")})["r0"]["tone"] == REST


def test_an_active_robot_whose_guard_brakes_is_in_doubt_and_says_why():
    robot = shown(guards={"r0": "not_held"})["r0"]
    assert robot["tone"] == DOUBT
    assert "the hold-to-run switch is not held" in robot["why"]


def test_the_sentence_of_the_mode_is_shown_once():
    robot = shown(modes={"r0": (Mode.HOLDING, "stale_pose", "stale_pose: the last pose is too old")})["r0"]
    assert robot["why"] == "stale_pose: the last pose is too old"


def test_the_reason_of_the_last_tick_is_shown_unless_it_is_the_mode():
    view = make_views(make_fleet())[0]
    views = [
        replace(view, record=SimpleNamespace(status="braked", reason=reason), record_age_s=0.0) for reason in REASONS
    ]
    (status, *_) = heard(100.0, modes={"r0": ("armed", "", "armed")}).robots(100.0)
    assert [why_of(status, one) for one in views] == ["", "shield_braked: the shield found no safe command", "new"]


def test_walls_and_obstacles_are_outlines_seen_from_above():
    values = fleet_values(make_fleet(orders=False), ARENA, 7)
    assert values["arena"] == [-1.6, -1.0, 1.6, 1.0]
    assert (len(values["obstacles"]), values["orders"], list(values["robots"])) == (2, False, list(NAMES))
    block = np.array(values["obstacles"][1])
    assert np.linalg.norm(block[0] - block[1]) == pytest.approx(0.5, abs=2e-3)
    reach = outline_of(Capsule((0.0, 0.0), (1.0, 0.0), 0.2))
    assert reach[0].max() == pytest.approx(1.2)
    assert fleet_values(make_fleet(), None, 7)["obstacles"] == []
