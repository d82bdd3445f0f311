"""The deployed tick of a team: what it computes is what a robot computes, and lanes keep the bodies apart.

Three robots that meet in the middle, with late and lost messages, lag, delay and scale drawn; layers 2 and 3 alone.
That whole control loops with real messages do the same as the simulation is tested in `test_robot_pipeline.py`.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.deployed_team import begin, deployed, drive, no_faults, places

from testudo_deploy.shield.geometry import point_distance, segment_distance
from testudo_deploy.shield.reservations import ShieldInputs
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_sim.team.message_radio import peer_spaces

SIZE, WORLDS, TICKS = 3, 5, 150
BLIND = WORLDS - 1
"""In this world, the negative control, announced lanes are taken without acknowledgements."""


def meeting(distance):
    """Return places (D, N, E) on a circle, yaws towards its middle, and the directions there."""
    angle = 2 * np.pi * np.arange(SIZE) / SIZE
    out = np.stack([np.cos(angle), np.sin(angle)])[..., None].repeat(WORLDS, axis=-1)
    return distance * out, (angle + np.pi)[:, None].repeat(WORLDS, axis=-1), -out


@pytest.fixture(scope="module")
def run():
    """Return team, deployment and the log: states (the first at the start), results, and what was wanted."""
    team, deployment = deployed(size=SIZE, longest=4, project=False)
    faults = replace(
        no_faults(2, SIZE, WORLDS, driver_ticks=4),
        message_ticks=np.array([[1, 1, 1, 2, 2], [1, 2, 4, 4, 4]], np.int32),
        blind_take=np.arange(WORLDS) == BLIND,
        link_loss=np.full((SIZE - 1, SIZE, WORLDS), 0.2, np.float32),
    )
    place, yaw, inwards = meeting(0.45)
    rng = np.random.default_rng(0)
    wanted = [
        team.model.spec.control_point_speed_m_s * (inwards + 0.3 * rng.standard_normal(inwards.shape))
        for _ in range(TICKS)
    ]
    script = iter(wanted)
    start = begin(team, deployment, place, yaw, faults)
    log = list(drive(team, deployment, start, lambda state: next(script), TICKS))
    return team, deployment, [start, *(state for state, _ in log)], [result for _, result in log], wanted


def test_the_robots_own_arithmetic_gives_the_same_commands_and_lanes(run):
    """The shield on NumPy numbers in double precision, for each tick of the simulation under XLA in single precision.

    A lane or candidate may differ where a comparison is within rounding: in a few ticks of a hundred at most.
    """
    team, deployment, states, results, wanted = run
    same = []
    for state, after, result, nominal in list(zip(states, states[1:], results, wanted, strict=False))[:80]:

        def double(tree):
            return jax.tree.map(lambda x: np.asarray(x, float) if x.dtype == jnp.float32 else np.asarray(x), tree)

        estimate, table, space = double(state.estimate), double(state.table), double(state.space)
        silent = deployment.shield.space.silence_s / team.model.spec.control_period_s
        peers = double(peer_spaces(state.radio, silent, ~state.flagged))
        measured, stop = double(state.measured), team.model.stopping_point(estimate)
        sight = ShieldInputs(measured.position_world, estimate, stop, table, peers)
        number = np.full((SIZE, WORLDS), float(state.number))
        found, lanes = deployment.shield.step(sight, space, np.asarray(nominal, np.float32).astype(float), number)
        close = np.abs(found.command - np.asarray(result.command)).max(axis=0) < 1e-3
        for mine, theirs in (
            (lanes.owned_world, after.space.owned_world),
            (lanes.announced_world, after.space.announced_world),
        ):
            close &= np.abs(mine - np.asarray(theirs)).max(axis=(0, 1)) < 1e-3
        close &= (lanes.pending == np.asarray(after.space.pending)) & (found.status == np.asarray(result.status))
        same.append(close)
    assert np.mean(np.array(same)[..., :BLIND]) > 0.97


def least_distance(states):
    """Return the least distance of any two robots' lanes in each world (E,) [m]."""
    least = np.full(WORLDS, np.inf)
    for state in states:
        first, last = np.asarray(state.space.owned_world, float)
        for i in range(SIZE):
            for j in range(i):
                least = np.minimum(least, segment_distance(first[:, i], last[:, i], first[:, j], last[:, j]))
    return least


def test_lanes_are_a_clearance_apart_at_all_times_but_not_without_acknowledgements(run):
    """With the negative control."""
    _, deployment, states, _, _ = run
    least = least_distance(states)
    assert least[:BLIND].min() >= deployment.shield.space.clearance_m - 1e-4
    assert least[BLIND] < deployment.shield.space.clearance_m - 1e-3


def test_bodies_stay_in_their_lanes_and_apart(run):
    """The claim of layers 2 and 3: within a lane's half-width and the tube's error of the own lane."""
    team, deployment, states, _, _ = run
    space, nearest = deployment.shield.space, np.inf
    for state in states:
        place = places(state).astype(float)[..., :BLIND]
        first, last = np.asarray(state.space.owned_world, float)[..., :BLIND]
        assert point_distance(place, first, last).max() <= space.lane_m + space.tube_error_m
        offset = place[:, :, None] - place[:, None]
        distance = np.linalg.norm(offset, axis=0) + 9 * np.eye(SIZE)[..., None]
        nearest = min(nearest, distance.min())
    assert nearest > 2 * team.model.spec.body_radius_m
    assert nearest < 2 * space.clearance_m  # they did meet


def test_they_drive_wait_and_say_so(run):
    _, _, states, results, _ = run
    status = np.stack([np.asarray(result.status) for result in results])
    moved = np.linalg.norm(places(states[-1]) - places(states[0]), axis=0)
    assert (moved > 0.05).mean() > 0.5
    assert (status == int(ShieldStatus.PASSED)).any()
    assert ((status == int(ShieldStatus.WAITING)) | (status == int(ShieldStatus.GATED))).any()
    assert not (status == int(ShieldStatus.BRAKED)).any()
    assert [int(state.number) for state in states] == list(range(TICKS + 1))
