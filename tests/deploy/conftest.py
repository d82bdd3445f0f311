"""A robot among peers as layer 1 sees it, and a control loop without a policy file."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.deploy.tiny_policy import draft_contract

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena, PeerTable, pair_rows, project_velocity, wall_rows
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot


@dataclass(frozen=True)
class Scene:
    """One robot among peers, many times (batch last)."""

    model: Any
    parameters: Any
    arena: Any
    state: Any
    table: Any
    nominal: np.ndarray

    def but(self, **changes):
        return replace(self, **changes)

    def shield(self, asarray=np.asarray, compiled=lambda function: function):
        """Return the shield's result on the arrays of one library."""

        def run(state, table, nominal):
            stop = self.model.stopping_point(state)
            return project_velocity(self.model, self.parameters, self.arena, stop, table, nominal)

        state = MotionState(*map(asarray, vars(self.state).values()))
        table = PeerTable(*(None if x is None else asarray(x) for x in vars(self.table).values()))
        return compiled(run)(state, table, asarray(self.nominal))

    def rows(self):
        """Return all normals (D, R, ...) and what must hold for certain (R, ...)."""
        stop = self.model.stopping_point(self.state)
        found = [pair_rows(self.parameters, stop, self.table)[0]]
        if self.arena is not None:
            found.append(wall_rows(self.parameters, self.arena, stop))
        found = [(normals, np.maximum(bounds, 0)) for normals, bounds in found]
        limits = self.model.limit_rows(stop)
        if limits is not None:
            found.append(limits)
        normals, bounds = zip(*found, strict=True)
        return np.concatenate(normals, axis=1), np.concatenate(bounds, axis=0)


@pytest.fixture
def make_scene():
    """Return a function that draws robots within their limits among peers at all distances."""

    def make(name="gritsbot_x", peers=3, count=200, seed=0, rows=8, crowd=1.0, arena=True):
        spec = load_robot(name)
        size, rng = spec.dimension, np.random.default_rng(seed)
        parameters = projection_parameters(spec, neighbour_rows=rows)
        half = 4 * parameters.separation_m
        position = rng.uniform(-half, half, (size, count)) * 0.9
        velocity = rng.uniform(-1, 1, (size, count))
        if spec.kind == DIFFERENTIAL_DRIVE:
            wheels = velocity * spec.wheel_limit_m_s * 0.9
            turn = (wheels[1] - wheels[0]) / spec.wheel_base_m
            turn = np.clip(turn, -spec.turn_rate_limit_rad_s, spec.turn_rate_limit_rad_s)
            forward = np.clip(wheels.mean(axis=0), -spec.speed_limit_m_s, spec.speed_limit_m_s)
            velocity = np.stack([forward, turn])
        else:
            velocity *= spec.speed_limit_m_s / np.sqrt(size)
        yaw = rng.uniform(-4, 4, count)
        direction = rng.standard_normal((size, peers, count))
        direction /= np.linalg.norm(direction, axis=0)
        away = crowd * parameters.separation_m * rng.uniform(0.5, 4, (peers, count))
        announced = rng.uniform(-0.5, 0.5, (size, peers, count)) * spec.speed_limit_m_s
        table = PeerTable(
            position[:, None] + away * direction,
            announced,
            rng.uniform(0, 0.1, (peers, count)),
            np.ones((peers, count), bool),
        )
        nominal = rng.uniform(-1.5, 1.5, (size, count)) * spec.control_point_speed_m_s
        box = Arena((-half,) * size, (half,) * size) if arena else None
        return Scene(motion_model(spec), parameters, box, MotionState(position, yaw, velocity), table, nominal)

    return make


@pytest.fixture
def message():
    """A sound announcement of r1 that echoes r0."""
    return PeerMessage(
        robot="r1",
        epoch="b",
        sequence=1,
        stamp_s=5.0,
        sample_age_s=0.02,
        control_point_world=(1.0, 0.0),
        control_velocity_world=(0.1, 0.0),
        position_world=(0.9, 0.0),
        yaw=0.1,
        contract="h",
        reserved_segment_world=((0.9, 0.0), (1.0, 0.0)),
        requested_segment_world=((0.9, 0.0), (0.9, 0.0)),
        echoes={"r0": ("a", 100.0, 1)},
    )


class StubPolicy:
    """What the control loop uses of an `Artefact`; `answer(signals, hidden)` may be set."""

    def __init__(self, spec, hidden_size=2, decision_ticks=3):
        arena = Arena((-4.0,) * spec.dimension, (4.0,) * spec.dimension)
        contract = draft_contract(spec, hidden_size, arena)
        self.contract = contract.replace(decision_ticks=decision_ticks)
        self.signals = []
        self.answer = lambda signals, hidden: (np.full(spec.dimension, 0.05), hidden + 1)

    def step(self, signals, hidden):
        self.signals.append({name: value.copy() for name, value in signals.items()})
        return self.answer(signals, hidden)


@pytest.fixture
def make_loop():
    """Return a function that makes a control loop, its stub policy, and what feeds it."""

    def make(name="gritsbot_x", peers=("r1",), start_s=100.0, decision_ticks=3, at=None, contract=lambda own: own):
        spec = load_robot(name)
        policy = StubPolicy(spec, decision_ticks=decision_ticks)
        policy.contract = contract(policy.contract)
        size = spec.dimension
        at = at or (0.0,) * size
        loop = ControlLoop(policy, spec, robot="r0", peers=peers, goal_world=(1.0,) * size, epoch="a")
        loop.on_guard(passes=False, received_s=start_s)  # it is where the test says, whatever it is sent
        rig = SimpleNamespace(loop=loop, policy=policy, spec=spec, now_s=start_s, sequence=0)

        def see(age_s=0.02, velocity=None, position=at, yaw=0.0):
            stamp_s = rig.now_s - age_s
            return loop.on_odometry(stamp_s, rig.now_s, position, yaw, velocity or (0.0,) * size)

        def hear(peer="r1", point=None, velocity=None, echo_s=None, received_s=None, lane=None):
            rig.sequence += 1
            lane = lane or ((2.0,) * size,) * 2
            echo_s = rig.now_s - 0.05 if echo_s is None else echo_s
            return loop.on_peer(
                PeerMessage(
                    robot=peer,
                    epoch="b",
                    sequence=rig.sequence,
                    stamp_s=5.0 + rig.sequence,
                    sample_age_s=0.02,
                    control_point_world=point or (2.0,) * size,
                    control_velocity_world=velocity or (0.0,) * size,
                    position_world=(2.0,) * size,
                    yaw=0.0,
                    contract=policy.contract.contract_hash,
                    reserved_segment_world=lane,
                    requested_segment_world=(lane[0], lane[0]),
                    echoes={"r0": ("a", echo_s, 10**6)},
                ),
                rig.now_s if received_s is None else received_s,
            )

        def tick(period_s=spec.control_period_s, *, sees=True, hears=True):
            rig.now_s += period_s
            if sees:
                see()
            if hears:
                for peer in peers:
                    hear(peer)
            return loop.tick(rig.now_s)

        rig.see, rig.hear, rig.tick = see, hear, tick
        return rig

    return make
