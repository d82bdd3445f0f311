"""A person whom no map has walks through a robot: at any contact the robot stands. Without ranges it does not.

The control loop gets scans that are cast here, ray by ray, with another geometry than the shield's.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.deploy.fine_motion import STEP_S, drawn
from tests.deploy.lone_drive import BEGIN_S, Drive

from testudo_deploy.control.scan_receiver import ScanReceiver
from testudo_deploy.guard.separation_zones import Scan, ScannerParameters
from testudo_deploy.shield.arena import Ball
from testudo_hardware.spec import load_robot

SCANNER = ScannerParameters(period_s=0.1, error_m=0.03, height_m=0.2, human_speed_m_s=1.0)
RAYS, FARTHEST_M = 64, 3.5
PERSON_M, WALK_M_S = 0.2, 1.0
REST_M_S = 0.01
INF = math.inf


def cast(place, yaw, discs, half_m, rng=None):
    """Return ranges (RAYS,) to discs (x, y, radius) and the walls of a square, where a march along each ray ends."""
    found = []
    for k in range(RAYS):
        along = np.array([math.cos(yaw + 2 * math.pi * k / RAYS), math.sin(yaw + 2 * math.pi * k / RAYS)])
        reach = 0.0
        for _ in range(60):
            at = place + reach * along
            room = min([math.dist(at, disc[:2]) - disc[2] for disc in discs] + [half_m - np.abs(at).max()])
            reach += max(room, 0.0)
            if room < 1e-3 or reach > FARTHEST_M:
                break
        noise = 0.0 if rng is None else rng.uniform(-1, 1) * SCANNER.error_m
        found.append(INF if reach > FARTHEST_M else max(reach + noise, 0.02))
    return found


def scan_of(stamp_s, ranges):
    return Scan(BEGIN_S + stamp_s, 0.0, 2 * math.pi / RAYS, 0.01, FARTHEST_M, ranges)


def walked_through(name, seed, *, ranges=True, seconds=6.0):
    """Return the robot's speeds [m/s] at all moments of contact with a person, and its highest speed.

    The person walks at the robot, from a metre away straight on, through it, up to 8 degrees beside its middle.
    """
    spec, rng = load_robot(name), np.random.default_rng(seed)
    drive = Drive(spec, drawn(spec, rng), rng)
    arena = drive.policy.contract.arena
    if ranges:
        drive.loop.scans = ScanReceiver(spec, SCANNER, arena, drive.loop._shield.space)
    start, beside = rng.uniform(-math.pi, math.pi), rng.uniform(-0.14, 0.14)
    person, walks = 3.0 * np.array([math.cos(start), math.sin(start)]), None
    coming, touches, driven, waiting = [], [], 0.0, []
    while drive.time_s < seconds:
        if not coming or drive.time_s - coming[-1] >= SCANNER.period_s - 1e-6:
            coming.append(drive.time_s)
            seen = cast(drive.place, drive.yaw, [(*person, PERSON_M)], arena.high_world[0], rng)
            waiting.append((drive.time_s + rng.uniform(0.0, 0.04), scan_of(drive.time_s, seen)))
        drive.see(rng.choice([0.02, 0.04]))
        while ranges and waiting and waiting[0][0] <= drive.time_s:
            drive.loop.scans.hear(waiting.pop(0)[1], drive.now_s)
        # towards the person, which is the worst that a policy can want
        way = person - drive.place
        wanted = spec.control_point_speed_m_s * way / max(np.linalg.norm(way), 1e-9)
        drive.tick(wanted)
        if walks is None or (math.dist(person, drive.place) > 1.0 and drive.time_s < 3.0):
            ahead = math.atan2(*(drive.place - person)[::-1]) + beside
            walks = WALK_M_S * np.array([math.cos(ahead), math.sin(ahead)])
        places, velocities = drive.move(spec.control_period_s)
        for step, (place, velocity) in enumerate(zip(places[1:], velocities[1:], strict=True)):
            at = person + (step + 1) * STEP_S * walks
            speed = abs(velocity[0]) if spec.wheel_base_m > 0 else float(np.linalg.norm(velocity))
            driven = max(driven, speed)
            if math.dist(place, at) <= spec.body_radius_m + PERSON_M:
                touches.append(speed)
        person = person + (len(places) - 1) * STEP_S * walks
    return np.array(touches), driven


CASES = [
    ("gritsbot_x", 0),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            *(("gritsbot_x", seed) for seed in range(1, 12)),
            *(("turtlebot4", seed) for seed in range(12)),
            *(("robomaster_s1", seed) for seed in range(6)),
        )
    ),
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_at_any_contact_with_an_unmapped_person_the_robot_stands(name, seed):
    touches, driven = walked_through(name, seed)
    assert len(touches) > 50, "the person walks through, so that there is a contact"
    assert touches.max() < REST_M_S
    assert driven > 0.1, "at other times it drives"


def test_without_ranges_the_robot_drives_into_the_person():
    """The negative control: the same walk, the same robot, no scans in the shield."""
    touches, _ = walked_through("gritsbot_x", 0, ranges=False)
    assert touches.max() > 0.1


def receiver(spec, arena=None, space=None, scanner=SCANNER):
    drive = Drive(spec, None, np.random.default_rng(0), arena=arena)
    scans = ScanReceiver(spec, scanner, drive.policy.contract.arena, space or drive.loop._shield.space)
    for stamp_s in (0.0, 0.1, 0.2):
        scans.hear_pose(BEGIN_S + stamp_s, (0.0, 0.0), 0.0)
    return scans, drive.loop


def nobody(count=0):
    """Return the reservations of no peers, or of as many at (1, 0)."""
    from testudo_deploy.shield.reservations import PeerReservations

    ends = np.tile(np.array([1.0, 0.0])[None, :, None], (2, 1, count))
    ones = np.ones(count)
    return PeerReservations(ends, ends, ones, ones < 0, ones > 0, ones > 0)


def test_walls_mapped_obstacles_and_peers_are_no_bodies_and_what_is_beside_them_is():
    spec = load_robot("gritsbot_x")
    plain, _ = receiver(spec)
    arena = replace(plain._arena, low_world=(-1.2, -1.2), high_world=(1.2, 1.2), obstacles=(Ball((0.0, 0.8), 0.2),))
    scans, _ = receiver(spec, arena)
    mapped, peer, box = (0.0, 0.8, 0.2), (1.0, 0.0, spec.body_radius_m), (-0.7, 0.0, 0.1)
    assert scans.hear(scan_of(0.15, cast(np.zeros(2), 0.0, [mapped, peer, box], 1.2)), BEGIN_S + 0.2)
    found = scans.bodies(BEGIN_S + 0.2, nobody(1))
    assert found.point_world.shape[1] > 0
    assert (np.hypot(found.point_world[0] + 0.7, found.point_world[1]) < 0.25).all()
    assert (found.point_world[0] > -0.6).all(), "nearer to the robot than what was seen, by the errors"
    unknown = scans.bodies(BEGIN_S + 0.2, nobody())
    assert unknown.point_world.shape[1] > found.point_world.shape[1], "the peer is a body without its messages"
    assert float(found.age_s) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ranges_m": [math.nan] * RAYS}, "unknown all around"),
        ({"angle_increment": math.pi / RAYS}, "half a circle"),
        ({"stamp_s": BEGIN_S - 1.0}, "old"),
        ({"stamp_s": BEGIN_S + 0.5}, "of the future"),
        ({"range_max_m": math.nan}, "no geometry"),
    ],
)
def test_a_robot_whose_scanner_says_nothing_brakes(change, why):
    scans, loop = receiver(load_robot("gritsbot_x"))
    loop.scans = scans
    sound = scan_of(0.15, [INF] * RAYS)
    assert not scans.hear(replace(sound, **change), BEGIN_S + 0.2), why
    assert loop.on_odometry(BEGIN_S + 0.2, BEGIN_S + 0.2, (0.0, 0.0), 0.0, (0.0, 0.0))
    assert loop.tick(BEGIN_S + 0.2).reason.startswith("scan_silent")
    assert scans.hear(sound, BEGIN_S + 0.21)
    assert loop.on_odometry(BEGIN_S + 0.22, BEGIN_S + 0.22, (0.0, 0.0), 0.0, (0.0, 0.0))
    assert loop.tick(BEGIN_S + 0.233).reason == ""
    assert loop.on_odometry(BEGIN_S + 0.5, BEGIN_S + 0.5, (0.0, 0.0), 0.0, (0.0, 0.0))
    assert loop.tick(BEGIN_S + 0.51).reason.startswith("scan_silent")


def test_what_is_too_near_to_measure_is_a_body_at_the_sensor():
    scans, _ = receiver(load_robot("gritsbot_x"))
    ranges = [INF] * RAYS
    ranges[3] = -INF
    assert scans.hear(scan_of(0.15, ranges), BEGIN_S + 0.2)
    assert np.abs(scans.bodies(BEGIN_S + 0.2, nobody()).point_world).min(axis=1).max() < 1e-9
