"""The shield's test protocol: its cells and counts, and that a control differs from its twin."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol import bench_shield
from testudo_bench.shield_protocol.batch_episode import begin, run_ticks
from testudo_bench.shield_protocol.bench_shield import COLUMNS, protocol_jobs, row, summary, totals
from testudo_bench.shield_protocol.cell_runner import CellOutcome, Job, Tables, run_jobs
from testudo_bench.shield_protocol.compiled_setting import Setting, build_stage, ticks
from testudo_bench.shield_protocol.ground_cells import DRONE, SLOW
from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    PROJECTION_ONLY,
    Claim,
    Conditions,
    Formation,
    ProtocolCell,
    Rule,
)
from testudo_bench.shield_protocol.world_batch import CellEpisode, draw_batch
from testudo_deploy.shield.arena import distance_to
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.fault_schedule import FALSE_SENDER, NEVER

JOBS = protocol_jobs(quick=False)


def head_on(**changes):
    cell = ProtocolCell("slow, head-on of 2", "", SLOW, 2, Formation.HEAD_ON, ALL_LAYERS, Claim.COVERED, 20.0, 4)
    return replace(cell, **changes)


NO_SHIELD = head_on(
    what="CONTROL no shield", layers=PROJECTION_ONLY, claim=Claim.CONTROL, conditions=Conditions(rule=Rule.NONE)
)


def test_the_protocol_has_the_required_size():
    batch = [job for job in JOBS if job.choice.physics == "kinematic" and job.cell.claim is Claim.COVERED]
    assert min(job.episodes for job in batch) >= 1000
    assert sum(job.episodes for job in batch) >= 100_000
    on_mujoco = [job for job in JOBS if job.choice.physics == "mujoco"]
    assert [job.episodes for job in on_mujoco] == [20] * 40


def test_names_are_unique_and_every_control_has_its_twin():
    """A control differs from its twin only in the disabled part, not in the disturbances."""
    cells = [job.cell for job in JOBS if job.choice.physics == "kinematic"]
    by_name = {cell.name: cell for cell in cells}
    assert len(by_name) == len(cells)
    controls = [cell for cell in cells if cell.claim is Claim.CONTROL]
    taken_out = set()
    for control in controls:
        twin = by_name[control.twin]
        changed = {key for key, value in vars(control.conditions).items() if value != getattr(twin.conditions, key)}
        assert len(changed) == 1
        key = changed.pop()
        taken_out.add(control.conditions.rule if key == "rule" else key)
        same = replace(
            control, what=twin.what, claim=twin.claim, episodes=twin.episodes, twin=None, conditions=twin.conditions
        )
        assert same == twin
    assert taken_out == {Rule.NONE, Rule.PLAIN, Rule.ONE_TICK, "blind_age", "blind_take", "blind_tracking", "driver_s"}


def test_the_quick_protocol_has_every_cell_of_the_fast_robot_and_all_controls_and_conditions():
    quick, whole = protocol_jobs(quick=True), JOBS
    assert {job.cell for job in quick} < {job.cell for job in whole}
    left_out = [job.cell for job in whole if (job.choice, job.cell) not in [(q.choice, q.cell) for q in quick]]
    assert {cell.claim for cell in left_out} <= {Claim.COVERED, Claim.REPORTED, Claim.COMPARED}
    assert not any(cell.robot == "robomaster_s1" for cell in left_out)
    conditions = {job.cell.conditions for job in quick}
    assert all(job.cell.conditions in conditions for job in whole if job.cell.layers == ALL_LAYERS)


def test_every_cell_starts_apart_and_inside_its_walls():
    for setting in dict.fromkeys(Setting.of(job.cell, job.choice) for job in JOBS):
        stage = build_stage(setting)
        for job in JOBS:
            if Setting.of(job.cell, job.choice) != setting:
                continue
            batch = draw_batch(stage, [CellEpisode(job.cell, number) for number in range(4)])
            place = np.asarray(batch.position_world)
            offset = place[:, :, None] - place[:, None, :]
            distance = np.linalg.norm(offset, axis=0) + 10 * np.eye(job.cell.size)[..., None]
            assert distance.min() >= stage.apart_m - 0.02, job.cell.name
            for points in (place, np.asarray(batch.goal_world)):
                room = np.array(stage.team.arena.high_world)[:, None, None] - np.abs(points)
                assert room.min() >= stage.wall_m, job.cell.name
                for obstacle in stage.team.arena.obstacles:
                    assert distance_to(obstacle, points).min() >= stage.wall_m, job.cell.name


def test_robots_swap_among_obstacles_of_each_kind():
    cells = [job.cell for job in JOBS if job.cell.formation is Formation.BLOCKS]
    assert {cell.place for cell in cells} == {"slow, blocks of 4", "fast, blocks of 4", "drone, blocks of 2"}
    for cell in cells:
        arena = build_stage(Setting.of(cell, JOBS[0].choice)).team.arena
        assert {obstacle.kind for obstacle in arena.obstacles} == {"ball", "capsule", "box"}


def test_a_control_meets_the_worlds_of_its_twin():
    twin = head_on()
    control = replace(NO_SHIELD, twin=twin.name)
    worlds = [
        draw_batch(build_stage(Setting.of(cell, JOBS[0].choice)), [CellEpisode(cell, 3)]) for cell in (twin, control)
    ]
    assert (worlds[0].position_world == worlds[1].position_world).all()
    assert (worlds[0].seed == worlds[1].seed).all()


def test_faults_match_the_conditions_of_the_cell():
    conditions = Conditions(message_s=0.3, loss=0.5, late_chance=0.1, dead_s=2.0, jump_m=0.2, one_way_loss=0.9)
    cell = head_on(conditions=conditions)
    stage = build_stage(Setting.of(cell, JOBS[0].choice))
    batch = draw_batch(stage, [CellEpisode(cell, 0)])
    faults = batch.faults
    assert faults.message_ticks[:, 0].tolist() == [8, 10]  # 0.3 s are 9.1 ticks
    assert faults.late_ticks[:, 0].tolist() == [2, 6]
    dead = (faults.dead_from < NEVER)[:, 0]
    assert dead.sum() == 1
    assert (faults.dead_until - faults.dead_from)[:, 0].max() == ticks(2.0, stage.spec)
    assert faults.link_loss[0, :, 0].tolist() == pytest.approx([0.9, 0.0])
    assert float(jnp.linalg.norm(faults.jump_world)) == pytest.approx(0.2)
    assert not batch.gone.any()


@pytest.mark.parametrize("robot", [SLOW, DRONE])
def test_weak_brakes_decelerate_less_and_accelerate_equally(robot):
    spec = load_robot(robot)
    model = motion_model(spec)
    physics = KinematicPhysics(model, None)
    draw = jax.jit(lambda keys: draw_parameters(keys, spec, Channels(), spread=0.0))
    parameters = draw(np.array([[0, 1]], np.uint32))
    weak = replace(parameters, brake_share=np.float32([0.7]))
    velocity = np.zeros((spec.dimension, 1, 1), np.float32)
    velocity[0] = 0.1
    state = MotionState(0 * velocity, np.zeros((1, 1), np.float32), velocity)
    advance = jax.jit(physics.advance)

    def change(command, own):
        sent = np.zeros((len(own.delay_weights), *velocity.shape), np.float32)
        sent[:, 0] = command
        return float((advance(state, sent, own).velocity - velocity)[0, 0, 0])

    assert change(0.0, weak) == pytest.approx(0.7 * change(0.0, parameters), rel=1e-4)
    assert change(0.15, weak) == pytest.approx(change(0.15, parameters), rel=1e-4)


@pytest.fixture(scope="module")
def measured():
    """A covered cell and its control, measured together."""
    tables, told = Tables(fast_compile=True), []
    run_jobs([Job(head_on(), 4), Job(NO_SHIELD, 4)], told.append, tables, save=lambda: told.append("saved"))
    return tables, told


def test_a_covered_cell_has_no_contact_and_its_control_has(measured):
    tables, told = measured
    intact, broken = (tables.outcomes["kinematic", cell] for cell in (head_on(), NO_SHIELD))
    assert intact.contacts.sum() == 0
    assert np.isfinite(intact.arrived_s).all()
    assert (intact.changed_share > 0).all()
    assert (broken.contacts > 0).all()
    assert (broken.fast_contacts > 0).all()
    assert (broken.changed_share == 0).all()
    assert told[-1].startswith("8 of 8 episodes")
    assert told.count("saved") == 2


def test_a_baseline_takes_the_place_of_layer_1_in_the_tick_of_a_team():
    """It was once called with an argument that it lacked, which ended the whole protocol without a result."""
    cell = head_on(layers=PROJECTION_ONLY, claim=Claim.COMPARED, conditions=Conditions(rule=Rule.ORCA), resolves=False)
    stage = build_stage(Setting.of(cell, Job(cell, 1).choice))
    course = jax.eval_shape(partial(begin, stage), draw_batch(stage, [CellEpisode(cell, 0)]), jnp.uint32(0))
    after = jax.eval_shape(partial(run_ticks, stage, ticks=1), course)
    assert jax.tree.map(jnp.shape, after.world) == jax.tree.map(jnp.shape, course.world)


def test_the_table_shows_the_results(measured):
    tables, _ = measured
    found = [summary("kinematic", cell, tables.outcomes["kinematic", cell]) for cell in (head_on(), NO_SHIELD)]
    assert [figures["holds"] for figures in found] == [True, True]
    assert [len(row(figures)) for figures in found] == [len(COLUMNS)] * 2
    assert found[0]["contact_rate_high"] == 0.75
    summed = totals(found)
    assert summed["covered_contacts"] == 0
    assert summed["controls_seen_to_fail"] == 1


def test_a_contact_or_a_control_without_one_is_reported():
    touched = CellOutcome(*(np.array([1.0]) for _ in range(9)))
    clean = CellOutcome(*(np.array([0.0]) for _ in range(9)))
    assert summary("kinematic", head_on(), touched)["holds"] is False
    assert summary("kinematic", NO_SHIELD, clean)["holds"] is False
    assert summary("kinematic", head_on(claim=Claim.REPORTED), touched)["holds"] is None
    hostile = head_on(claim=Claim.HOSTILE)
    still = replace(touched, fast_contacts=np.array([0]))
    assert summary("kinematic", hostile, still)["holds"] is True
    assert summary("kinematic", hostile, touched)["holds"] is False


def test_the_control_of_a_hostile_cell_must_show_contacts_at_own_speed():
    """A hostile robot can touch one that stands, so that any contact would prove nothing."""
    hostile = head_on(claim=Claim.CONTROL, conditions=Conditions(hostile_kind=FALSE_SENDER, blind_tracking=True))
    touched = CellOutcome(*(np.array([1.0]) for _ in range(9)))
    still = replace(touched, fast_contacts=np.array([0]))
    assert summary("kinematic", hostile, touched)["holds"] is True
    assert summary("kinematic", hostile, still)["holds"] is False


def test_the_same_command_goes_on_after_the_cells_that_are_whole(monkeypatch, tmp_path):
    """One cell is whole when an error ends the run, another one is not; the next run asks for all but the first."""
    saved, asked = tmp_path / "shield.json", []
    first, second = protocol_jobs(quick=True)[:2]

    def broken(jobs, say, tables, policies, save):
        asked.append([job.cell.name for job in jobs])
        tables.add("kinematic", first.cell, CellOutcome(*(np.zeros(first.episodes) for _ in range(9))))
        tables.add("kinematic", second.cell, CellOutcome(*(np.zeros(second.episodes - 1) for _ in range(9))))
        tables.robot_ticks, tables.compile_s = 7.0, 3.0
        save()
        raise RuntimeError

    def interrupted(jobs, say, tables, policies, save):
        asked.append([job.cell.name for job in jobs])
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_shield, "run_jobs", broken)
    with pytest.raises(RuntimeError):
        bench_shield.bench_shield(quick=True, saved=saved)
    monkeypatch.setattr(bench_shield, "run_jobs", interrupted)
    result = bench_shield.bench_shield(quick=True, saved=saved)
    assert asked[0][:2] == [first.cell.name, second.cell.name]
    assert asked[1] == [name for name in asked[0] if name != first.cell.name]
    assert result.values["interrupted"]
    assert (result.values["robot_ticks"], result.values["compile_s"]) == (7.0, 3.0)  # of all runs, as the time
    assert [figures["cell"] for figures in result.values["cells"]] == [first.cell.name]
    saved.write_text(saved.read_text().replace(result.values["source"], "another"))
    bench_shield.bench_shield(quick=True, saved=saved)
    assert asked[2] == asked[0]
    assert not saved.exists()
    assert saved.with_name("shield.json.before").exists()


def test_a_file_of_another_benchmark_is_refused(tmp_path):
    saved = tmp_path / "other.json"
    saved.write_text('{"cells": 1}')
    with pytest.raises(TestudoError, match="no output of `testudo bench shield`"):
        bench_shield.bench_shield(quick=True, saved=saved)
