"""The protocol's cells of drones: starts, controls, and what vehicles do when their radio is silent."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol.bench_shield import protocol_jobs
from testudo_bench.shield_protocol.cell_runner import Job, Tables, run_jobs
from testudo_bench.shield_protocol.compiled_setting import Setting, build_stage
from testudo_bench.shield_protocol.drone_cells import RADIO, drone_cells
from testudo_bench.shield_protocol.protocol_cell import Claim, Formation
from testudo_bench.shield_protocol.protocol_table import summary, wash_m
from testudo_bench.shield_protocol.world_batch import CellEpisode, draw_batch
from testudo_deploy.shield.segment_distance import squeezed
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.team.lost_link import coasted, listening, receive

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


def test_what_the_issue_asks_for_is_there():
    covered = [cell for cell in CELLS if cell.claim is Claim.COVERED]
    assert {cell.size for cell in covered if cell.formation is Formation.SWAP} >= {2, 4, 6, 8, 16}
    formations = {cell.formation for cell in covered}
    assert {Formation.HEAD_ON, Formation.VERTICAL, Formation.STACKED, Formation.CROSSING} <= formations
    for brake in (True, False):
        assert set(RADIO) <= {cell.what for cell in covered if cell.conditions.onboard_brake == brake}
    assert any(job.choice.physics == "attitude" for job in protocol_jobs(quick=False, robot="crazyflie_2x"))
    with pytest.raises(TestudoError, match="gritsbot_x has no table"):
        protocol_jobs(quick=True, robot="gritsbot_x")


def test_drones_start_apart_in_the_metric_of_their_shield_and_inside():
    for setting in dict.fromkeys(Setting.of(cell, PLAIN) for cell in CELLS):
        stage = build_stage(setting)
        for cell in CELLS:
            if Setting.of(cell, PLAIN) != setting or setting.level:
                continue
            batch = draw_batch(stage, [CellEpisode(cell, number) for number in range(2)])
            place = np.asarray(batch.position_world)
            offset = squeezed(place[:, :, None] - place[:, None, :], stage.team.shield.height_ratio)
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
    vehicle, state = listening(jnp.stack([told] * 3)), MotionState(jnp.zeros((3, 2, 1)), jnp.zeros((2, 1)), told)
    path = []
    for number in range(round(seconds / stage.spec.control_period_s)):
        vehicle = receive(vehicle, loss, told, jnp.asarray(number), jax.random.key(number))
        after = MotionState(state.position_world + 0.02 * vehicle.reached[0], state.yaw, vehicle.reached[0])
        state = coasted(stage.team, state, after, vehicle, loss)
        path.append((*np.asarray(state.position_world)[:, 0, 0], *np.asarray(state.velocity)[:, 0, 0]))
    return np.array(path), stage


def test_a_silent_drone_holds_levels_coasts_and_falls():
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
def test_a_brake_that_is_not_there_is_seen():
    cells = [
        BY_NAME["drone, swap of 2, radio of one lost, layers 1+2+3"],
        next(cell for cell in CELLS if cell.conditions.really_brakes is False),
    ]
    tables = Tables(hasty=True)
    run_jobs([Job(cell, 64) for cell in cells], lambda _: None, tables)
    intact, control = (summary("kinematic", cell, tables.outcomes["kinematic", cell]) for cell in cells)
    assert intact["episodes_with_contact"] == intact["episodes_in_wash"] == 0
    assert control["holds"]
    assert wash_m(cells[0]) == pytest.approx(0.24)
