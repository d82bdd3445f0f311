"""Holonomic bases driven as over ROS, without it: control loops, messages of the wire, the plant in MuJoCo."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    body_forward_command,
    fill_command,
    fill_odometry,
    read_command,
    read_odometry,
)
from testudo_hardware.spec import load_robot
from testudo_plant.plant.plant import Plant, PlantRobot

SPEC = load_robot("robomaster_s1")
ARENA = Arena((-3.0, -3.0), (3.0, 3.0))
STARTS = ((-1.2, 0.0), (1.2, 0.1))
GOALS = ((1.2, 0.4), (-1.2, -0.4))
YAWS = (2.0, -1.1)


class Straight:
    """What a `ControlLoop` uses of an artefact: it wants to go straight to the goal, slower near it."""

    def __init__(self, contract):
        self.contract = contract

    def step(self, signals, hidden):
        way = np.asarray(signals["goal_world"]) - np.asarray(signals["control_point_world"])
        way = way.reshape(-1)
        return way / max(1.0, np.linalg.norm(way)), hidden


def blank(*names):
    return SimpleNamespace(**dict.fromkeys(names, 0.0))


def twist():
    return SimpleNamespace(linear=blank("x", "y", "z"), angular=blank("x", "y", "z"))


def header():
    return SimpleNamespace(stamp=blank("sec", "nanosec"), frame_id="")


def over_the_wire(reading):
    """Return the odometry as the robot reads it."""
    pose = SimpleNamespace(position=blank("x", "y", "z"), orientation=blank("x", "y", "z", "w"))
    message = SimpleNamespace(
        header=header(), child_frame_id="", pose=SimpleNamespace(pose=pose), twist=SimpleNamespace(twist=twist())
    )
    return read_odometry(fill_odometry(message, "r0", SPEC, reading), "r0", SPEC)


def driven(make_artefact, seconds, *, turns=True):
    """Drive two bases that swap places, with a spread of lag, delay and scale; return the plant and the records."""
    contract = make_artefact(SPEC.name, 0).contract.replace(arena=ARENA, decision_ticks=1)
    names = ("r0", "r1")
    robots = [PlantRobot(*robot) for robot in zip(names, (SPEC, SPEC), STARTS, YAWS, strict=True)]
    plant = Plant(robots, ARENA, 0, 0.04, start_s=100.0)
    loops = {
        name: ControlLoop(Straight(contract), SPEC, robot=name, peers=(names[1 - i],), goal_world=GOALS[i], epoch=name)
        for i, name in enumerate(names)
    }
    records = []
    for k in range(round(seconds / SPEC.control_period_s)):
        now_s = 100.0 + k * SPEC.control_period_s
        plant.step_to(now_s)
        for name, loop in loops.items():
            for sample in plant.odometry(name):
                got = over_the_wire(OdometryReading(sample.stamp_s, sample.position_world, sample.yaw, sample.velocity))
                loop.on_odometry(got.stamp_s, now_s, got.position_world, got.yaw, got.velocity)
        said = {}
        for name, loop in loops.items():
            record = loop.tick(now_s, 0.0)
            records.append(record)
            yaw = (record.estimate_yaw or 0.0) if turns else 0.0
            sent = CommandReading(now_s, body_forward_command(SPEC, record.sent_command, yaw))
            message = fill_command(SimpleNamespace(header=header(), twist=twist()), name, SPEC, sent)
            plant.command(name, read_command(message, name, SPEC).command, now_s, now_s)
            said[name] = loop.announcement(now_s)
        for name, loop in loops.items():
            for peer, message in said.items():
                if peer != name and message is not None:
                    loop.on_peer(message, now_s)
    return plant, records


def misses(plant):
    return [math.dist(plant.truth(f"r{i}").position_world, goal) for i, goal in enumerate(GOALS)]


def test_bases_that_face_anywhere_swap_places_without_touching(make_artefact):
    """Each faces its own way, drives sideways and backwards, and keeps its heading."""
    plant, records = driven(make_artefact, 25.0)
    assert max(misses(plant)) < 0.1
    assert plant.contacts == ()
    assert plant.watch.minimum_separation_m > 2 * SPEC.body_radius_m
    for i, yaw in enumerate(YAWS):
        assert plant.truth(f"r{i}").yaw == pytest.approx(yaw, abs=0.01)
    assert np.mean([record.reason != "" for record in records]) < 0.1


def test_negative_control_a_command_that_is_not_turned_misses_the_goal(make_artefact):
    """The same with commands in the world taken for twists in the body."""
    plant, _ = driven(make_artefact, 10.0, turns=False)
    assert min(misses(plant)) > 0.5
