"""The protocol's cells of drones: starts, controls, and what vehicles do when their radio is silent."""

import dataclasses
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol.baselines import BaselineScene, barrier_certificate, buffered_voronoi
from testudo_bench.shield_protocol.bench_shield import protocol_jobs, summary, wash_m
from testudo_bench.shield_protocol.cell_runner import Job, Tables, run_jobs
from testudo_bench.shield_protocol.compiled_setting import Setting, build_stage
from testudo_bench.shield_protocol.drone_cells import RADIO, drone_cells
from testudo_bench.shield_protocol.protocol_cell import Claim, Formation
from testudo_bench.shield_protocol.world_batch import CellEpisode, draw_batch
from testudo_deploy.shield.geometry import z_scaled
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_policies.planners.orca import orca
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.team.fault_schedule import coasted, listening, receive

CELLS = drone_cells("crazyflie_2x")
BY_NAME = {cell.name: cell for cell in CELLS if cell.claim is not Claim.CONTROL}
PLAIN = PhysicsChoice()


def test_names_are_unique_and_a_control_differs_from_its_twin_in_one_thing():
    names = [cell.name for cell in CELLS]
    assert len(set(names)) >= len(names) - 1, "a twin may be a cell of its own as well"
    taken_out = set()
    for control in (cell for cell in CELLS if cell.claim is Claim.CONTROL):
        twin = BY_NAME[control.twin]
        changed = {key for key, value in vars(control.conditions).items() if value != getattr(twin.conditions, key)}
        assert len(changed) == 1, control.name
        taken_out |= changed
    assert taken_out == {"rule", "blind_age", "blind_take", "driver_s", "level", "really_brakes"}


def test_all_required_cells_exist():
    covered = [cell for cell in CELLS if cell.claim is Claim.COVERED]
    assert {cell.size for cell in covered if cell.formation is Formation.SWAP} >= {2, 4, 6, 8, 16}
    formations = {cell.formation for cell in covered}
    assert {Formation.HEAD_ON, Formation.VERTICAL, Formation.STACKED, Formation.CROSSING} <= formations
    for brake in (True, False):
        assert set(RADIO) <= {cell.what for cell in covered if cell.conditions.onboard_brake == brake}
    assert any(job.choice.physics == "attitude" for job in protocol_jobs(quick=False, robot="crazyflie_2x"))
    with pytest.raises(TestudoError, match="--robot: gritsbot_x: found no table"):
        protocol_jobs(quick=True, robot="gritsbot_x")


def test_drones_start_apart_in_the_metric_of_their_shield_and_inside():
    for setting in dict.fromkeys(Setting.of(cell, PLAIN) for cell in CELLS):
        stage = build_stage(setting)
        for cell in CELLS:
            if Setting.of(cell, PLAIN) != setting or setting.level:
                continue
            batch = draw_batch(stage, [CellEpisode(cell, number) for number in range(2)])
            place = np.asarray(batch.position_world)
            offset = z_scaled(place[:, :, None] - place[:, None, :], stage.team.shield.height_ratio)
            distance = np.linalg.norm(offset, axis=0) + 99 * np.eye(cell.size)[..., None]
            assert distance.min() >= stage.apart_m - 0.05, cell.name
            for points in (place, np.asarray(batch.goal_world)):
                assert (np.array(stage.team.arena.high_world)[:, None, None] - np.abs(points)).min() >= stage.wall_m


def flown(brakes, seconds, velocity):
    """Return height and speeds of a drone (1 world, of two) whose radio is lost after a set-point, at every tick."""
    cell = replace(BY_NAME["drone, swap of 2, radio of one lost, layers 1+2+3"])
    cell = replace(cell, conditions=replace(cell.conditions, onboard_brake=brakes))
    stage = build_stage(Setting.of(cell, PLAIN))
    loss = draw_batch(stage, [CellEpisode(cell, 0)]).faults.radio
    loss = replace(
        loss, lost_from=jnp.zeros((2, 1), jnp.int32), drag_per_s=jnp.full(1, 0.5), drift_m_s2=jnp.zeros((2, 2, 1))
    )
    told = jnp.broadcast_to(jnp.array(velocity)[:, None, None], (3, 2, 1))

    def step(before, number):
        vehicle, state = before
        vehicle = receive(vehicle, loss, told, number, jax.random.key(number))
        after = MotionState(state.position_world + 0.02 * vehicle.reached[0], state.yaw, vehicle.reached[0])
        state = coasted(stage.team.model.spec, stage.team.arena.low_world[2], state, after, vehicle, loss)
        return (vehicle, state), jnp.concatenate([state.position_world[:, 0, 0], state.velocity[:, 0, 0]])

    @jax.jit
    def fly(numbers):
        begin = listening(jnp.stack([told] * 3)), MotionState(jnp.zeros((3, 2, 1)), jnp.zeros((2, 1)), told)
        return jax.lax.scan(step, begin, numbers)[1]

    return np.asarray(fly(np.arange(round(seconds / stage.spec.control_period_s)))), stage


def test_a_drone_without_set_points_holds_levels_coasts_and_falls():
    path, stage = flown(False, 4.0, [1.0, 0.0, 0.2])
    at = {s: path[round(s / 0.02) - 1] for s in (0.5, 1.9, 4.0)}
    assert at[0.5][3] == pytest.approx(1.0)
    assert at[1.9][3] == pytest.approx(np.exp(-0.5 * 1.4), rel=0.03)
    assert at[1.9][5] == pytest.approx(0.2), "its vertical set-point is kept"
    assert 1.2 < at[1.9][0] < 1.6
    floor_m = stage.team.arena.low_world[2] + stage.spec.body_radius_m
    assert at[4.0][2] == pytest.approx(floor_m, abs=1e-3)
    assert at[4.0][3:].tolist() == [0, 0, 0]


def test_a_drone_with_a_brake_stops_at_its_dead_man_time():
    path, _ = flown(True, 1.0, [1.0, 0.0, 0.2])
    moving = np.abs(path[:, 3]) > 0
    assert moving.sum() == 5, "the set-point arrived at tick 0 acts for the dead-man time"
    assert not moving[6:].any()


@pytest.mark.slow
def test_a_missing_brake_is_detected():
    cells = [
        BY_NAME["drone, swap of 2, radio of one lost, layers 1+2+3"],
        next(cell for cell in CELLS if cell.conditions.really_brakes is False),
    ]
    tables = Tables(fast_compile=True)
    run_jobs([Job(cell, 64) for cell in cells], lambda _: None, tables)
    intact, control = (summary("kinematic", cell, tables.outcomes["kinematic", cell]) for cell in cells)
    assert intact["episodes_with_contact"] == intact["episodes_in_wash"] == 0
    assert control["holds"]
    assert wash_m(cells[0]) == pytest.approx(0.24)


def scene(peer, peer_velocity=(0.0, 0.0), velocity=(0.0, 0.0), goal=(2.0, 0.1)):
    """Return a robot in the origin that keeps 0.5 m from one peer."""
    column = [jnp.array(values)[:, None] for values in (velocity, goal)]
    return BaselineScene(
        position_world=jnp.zeros((2, 1)),
        velocity_world=column[0],
        peer_position_world=jnp.array(peer)[:, None, None],
        peer_velocity_world=jnp.array(peer_velocity)[:, None, None],
        goal_world=column[1],
        separation_m=0.5,
        speed_m_s=1.0,
        period_s=0.05,
    )


def column(*values):
    return jnp.array(values)[:, None]


def test_certificate_takes_half_of_alpha_h():
    """h = 0.36 - 0.25 = 0.11; -2 * 0.6 * u >= -10 * 0.11 / 2 leaves u = 0.4583 towards the peer, and all across."""
    velocity = jax.jit(lambda: barrier_certificate(scene((0.6, 0.0)), column(0.8, 0.3)))()
    np.testing.assert_allclose(velocity[:, 0], (0.45833, 0.3), atol=1e-4)


def test_certificate_ignores_far_peers():
    velocity = jax.jit(lambda: barrier_certificate(scene((2.0, 0.0)), column(0.8, 0.3)))()
    np.testing.assert_allclose(velocity[:, 0], (0.8, 0.3))


def test_voronoi_drives_to_the_point_of_its_cell_nearest_to_the_goal():
    """The cell ends at 0.5 - 0.25 m; its point nearest to (2, 0.1) is (0.25, 0.1), approached with 1.5 /s."""
    velocity = jax.jit(lambda: buffered_voronoi(scene((1.0, 0.0))))()
    np.testing.assert_allclose(velocity[:, 0], (0.375, 0.15), atol=1e-5)


@pytest.mark.parametrize(
    "rule", [orca, lambda s, wanted: buffered_voronoi(s), barrier_certificate], ids=["orca", "voronoi", "certificate"]
)
def test_bodies_without_lag_keep_their_distance(rule):
    """The guarantee of the methods for their own model, a body that follows its commands exactly."""
    place = np.array([[-1.0, 1.0], [0.0, 0.02]])
    goal, moved = -place, np.zeros((2, 2))
    least = np.inf
    for _ in range(120):
        peers = place[:, ::-1]
        seen = dataclasses.replace(
            scene((1.0, 0.0)),
            position_world=jnp.array(place),
            velocity_world=jnp.array(moved),
            peer_position_world=jnp.array(peers)[:, None],
            peer_velocity_world=jnp.array(moved[:, ::-1])[:, None],
            goal_world=jnp.array(goal),
        )
        offset = goal - place
        distance = np.linalg.norm(offset, axis=0)
        wanted = offset * np.minimum(1.0, 1.5 * distance) / (distance + 1e-6)
        moved = np.asarray(rule(seen, jnp.array(wanted)))
        place = place + 0.05 * moved
        least = min(least, np.linalg.norm(place[:, 0] - place[:, 1]))
    assert least > 0.49
