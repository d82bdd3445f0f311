"""The bodies of a tick as machine code: the records of a robot are those of NumPy, and wrong code is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.deploy.tiny_policy import draft_contract

from testudo_deploy.compiling import shared_library
from testudo_deploy.compiling.shared_library import NotCompiledError
from testudo_deploy.control import tick_bodies
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.control.tick_bodies import AGREEMENT, CompiledTickBodies, TickBodies
from testudo_deploy.control.tick_draw import TickDraw
from testudo_deploy.shield.arena import Ball, Block, Capsule
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot

OBSTACLES = (Ball((0.4, 0.3), 0.2), Block((-0.5, 0.4), (0.3, 0.1), 0.4), Capsule((0.2, -0.5), (0.9, -0.5), 0.05))
OTHERS = (
    ("gritsbot_x", 9, False, OBSTACLES),
    ("robomaster_s1", 3, True, OBSTACLES),
    ("turtlebot4", 4, True, ()),
    ("crazyflie_2x", 5, False, ()),
    ("crazyflie_2x", 9, True, ()),
)
DRAWN = 2000
"""Situations of each of these, in 20 s of processor time; `testudo bench robot --worlds N` draws more for a policy."""


@pytest.fixture(autouse=True)
def quick_compiler(request, monkeypatch):
    """Compile without optimisation, in a quarter of the time; the slow tests take the flags of a robot."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(shared_library, "FLAGS", ["-O0", *shared_library.FLAGS[1:]])


def bodies_of(name, obstacles=()):
    spec = load_robot(name)
    size = spec.dimension
    contract = draft_contract(spec, arena=Arena((-4.0,) * size, (4.0,) * size, obstacles))
    shield = Shield(motion_model(spec), contract.shield, stop_tube_parameters(spec), contract.arena)
    rule = DeadlockResolver(contract.shield, contract.arena, contract.control_period_s, size).rule
    return TickBodies(shield, rule)


def test_drawn_situations_give_the_numbers_of_numpy():
    """Among obstacles with passages, too: what one robot leaves out beyond their reach changes nothing."""
    compiled = CompiledTickBodies(bodies_of("gritsbot_x", OBSTACLES), 2)
    assert compiled.difference(60, seed=5)[0] <= AGREEMENT


def test_bodies_that_a_scanner_sees_are_not_left_out():
    """The machine code has no rows for them: such inputs go to the shield itself, which keeps clear of them."""
    bodies = bodies_of("gritsbot_x")
    compiled = CompiledTickBodies(bodies, 2)
    away = 0.0
    for arguments in TickDraw(bodies.shield, 2, False, 0, 16).many(60, seed=3):
        inputs, *rest = arguments["check"]
        point = inputs.stop.position_world[:, None] + np.array([[0.01], [0.0]])
        seen = SensedBodies(point, np.ones(1, bool), np.asarray(0.1), np.asarray(1.6))
        with_bodies = replace(inputs, bodies=seen)
        found, expected = (one.check(bodies.shield, with_bodies, *rest)[0].command for one in (compiled, bodies))
        np.testing.assert_array_equal(found, expected)
        away = max(away, float(np.abs(found - compiled.check(bodies.shield, inputs, *rest)[0].command).max()))
    assert away > 0.01  # control: they change the command


@pytest.mark.slow
@pytest.mark.parametrize(("name", "peers", "untrusted", "obstacles"), OTHERS)
def test_drawn_situations_of_other_robots_give_the_numbers_of_numpy(name, peers, untrusted, obstacles):
    compiled = CompiledTickBodies(bodies_of(name, obstacles), peers, untrusted=untrusted)
    difference, where = compiled.difference(DRAWN, seed=5)
    assert difference <= AGREEMENT, where


def test_a_robot_records_the_same_bytes(make_loop):
    """A hundred ticks past two peers that move, one of which falls silent: every number, so every command, is equal."""
    rigs = [make_loop(peers=("r1", "r2"), decision_ticks=2) for _ in range(2)]
    rigs[1].loop.use_compiled_bodies()
    statuses = set()
    for tick in range(100):
        swing, records = 0.1 * math.sin(0.2 * tick), []
        for rig in rigs:
            rig.now_s += rig.spec.control_period_s
            rig.policy.answer = lambda signals, hidden, way=swing: (np.array([0.2, way]), hidden + 1)
            rig.see(position=(0.3 + 0.002 * tick, swing), yaw=0.05 * tick)
            rig.hear("r1", (0.75 - swing, 0.3), (0.0, swing), lane=((0.75, 0.3), (0.7 - swing, 0.35)))
            if tick < 70:
                rig.hear("r2", (0.3, -0.6), lane=((0.3, -0.6), (0.3 + swing, -0.6)))
            records.append(rig.loop.tick(rig.now_s))
        first, second = (record.encode() for record in records)
        statuses.add(records[0].status)
        durations = [f'"duration_s":{record.duration_s!r}'.encode() for record in records]
        assert first.replace(durations[0], b"") == second.replace(durations[1], b"")
    assert len(statuses) > 1, statuses


def test_code_that_does_not_agree_with_numpy_is_refused(monkeypatch):
    """Negative control: a constant of the source is changed before it is compiled."""
    right = tick_bodies.c_file
    monkeypatch.setattr(tick_bodies, "c_file", lambda functions: right(functions).replace("a < b ||", "a > b ||"))
    with pytest.raises(NotCompiledError, match="differs from NumPy by"):
        CompiledTickBodies(bodies_of("gritsbot_x"), 1)
