"""A task that is more than goals drives a fleet in one process: control loops, task node's logic, re-inference."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sim.online_task.task_fleet import Drive, make_pushing_fleet, make_task_fleet

from testudo_analysis.replay import mutations_detected, reinfer
from testudo_analysis.replay.counterfactual import (
    CounterfactualVariant,
    HorizonSettings,
    recorded_task,
    simulate_from,
)
from testudo_analysis.replay.recorded_task import RecordedTask
from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.contract.rules import PolicyContractError
from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_deploy.fleet.fleet import FleetError, load_fleet, parse_fleet
from testudo_deploy.fleet.fleet_writer import fleet_text
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import prepare_run
from testudo_runs.run_reader import CommandTrack, RecordedRun, Track
from testudo_sim.online_task.task_state import Pose

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_task_fleet(tmp_path_factory.mktemp("foraging"))


def run_of(drive, messages):
    """Return a recording of the drive; the odometry has exact samples 5 ms before each tick."""

    def track(name):
        ticks = [record for record in drive.records[name] if record.pose_stamp_s is not None]
        rows = [np.array([getattr(tick, key) for tick in ticks]) for key in ("pose_stamp_s", "stamp_s")]
        return Track(
            *rows,
            np.array([tick.measured_position_world for tick in ticks]),
            np.unwrap([tick.measured_yaw for tick in ticks]),
            np.array([tick.measured_velocity for tick in ticks]),
        )

    names, nothing = drive.fleet.names, CommandTrack(np.zeros(0), np.zeros(0), np.zeros((0, 2)))
    return RecordedRun(
        Path("run"),
        drive.fleet,
        {},
        {name: tuple(drive.records[name]) for name in names},
        {name: track(name) for name in names},
        {name: track(name) for name in names},
        dict.fromkeys(names, nothing),
        dict.fromkeys(names, nothing),
        dict.fromkeys(names, ()),
        (),
        complete=True,
        warnings=(),
        task_messages={name: tuple(one for one in messages if one.robot == name) for name in names},
    )


@pytest.fixture(scope="module")
def drive(fleet):
    """Return a drive to the first resource, which takes two thirds of the way."""
    drive = Drive(fleet)
    while drive.tick_count < 1200 and not (drive.scores and drive.scores[-1].metrics.get("foraged")):
        drive.tick()
    for _ in range(2 * drive.contract.decision_ticks):
        drive.tick()
    return drive


def test_the_robots_forage_together(drive):
    assert drive.scores[-1].metrics["foraged"] >= 1
    assert not any(score.missing for score in drive.scores)
    assert {record.reason.partition(":")[0] for records in drive.records.values() for record in records} <= {
        "",
        "peer_unheard",
        "peer_unaware",
        "task_stale",
    }


def test_values_age_and_contract_are_in_the_record_and_the_task_changes(drive):
    records = [record for record in drive.records["r1"] if record.decided]
    first, last = records[0], records[-1]
    assert {record.task_contract for record in records} == {drive.contract.task_hash}
    assert first.task_values["neighbour_level"] == (1.0, 3.0)
    assert first.task_values["resource_valid"] == (1.0, 1.0)
    assert sorted(last.task_values["resource_valid"]) == [0.0, 1.0]
    assert all(0 < record.task_age_s < 0.1 for record in records)
    held = [record for record in drive.records["r1"] if not record.decided]
    assert not any(record.task_values for record in held)


def test_reinference_is_exact_and_a_changed_value_is_found(drive):
    run = run_of(drive, drive.messages)
    result = reinfer(run, drive.artefact)
    assert result.error <= 1e-12
    assert {check.name: check.compared > 0 for check in result.robots[0].fields}["task"]
    found = {one.field: one.caught for one in mutations_detected(run, drive.artefact)}
    assert found["task_values"]
    aged = [replace(record, task_age_s=0.001) if record.task_age_s else record for record in run.ticks["r0"]]
    assert reinfer(replace(run, ticks={**run.ticks, "r0": tuple(aged)}), drive.artefact).error > 0.01


def test_a_task_node_that_stops_brakes_every_robot_in_time(fleet):
    drive = Drive(fleet)
    while drive.tick_count < 40 or any(record.reason for record in drive.tick().values()):
        drive.tick()
    drive.task_runs, stopped_s = False, drive.now_s
    while not all(record.reason for record in drive.tick().values()):
        assert drive.now_s < stopped_s + 2 * OLDEST_TASK_S
    for records in drive.records.values():
        assert records[-1].reason.startswith("task_stale: the values of the task are 0.4")
        assert set(records[-1].sent_command) == {0.0}
    drive.task_runs = True
    for _ in range(3):
        found = drive.tick()
    assert not any(record.reason for record in found.values())


def test_the_task_of_a_run_is_found_at_any_time_and_goes_on_in_simulation(drive):
    """From 4 s before a resource is foraged, policy, shield and task go on as in the run: it is foraged there, too."""
    recording = replace(prepare_run(run_of(drive, ())), contract=drive.contract)
    task = RecordedTask.create(recording, drive.contract)
    live = drive.scores[-1]
    assert task.return_between(0.0, 1e3) == pytest.approx(np.mean(list(live.total.values())), abs=0.05)
    left_s = next(
        stamp_s for stamp_s, reward in zip(task.stamp_s, task.rewards, strict=True) if reward > 1
    )  # a resource was foraged: +5 for the team
    before_s = left_s - 4.0
    assert float(task.at(before_s).left.sum()) == float(task.start.left.sum())
    assert float(task.at(left_s).left.sum()) == float(task.start.left.sum()) - 1
    variant = CounterfactualVariant("policy", drive.artefact, shielded=True, task=task)
    (found,) = simulate_from(recording, (before_s,), variant, HorizonSettings(6.0, 1)).outcomes
    assert found.touched == 0
    assert found.task_return == pytest.approx(task.return_between(before_s, before_s + 6.0), abs=0.5)
    assert task.return_between(before_s, before_s + 1.0) < 1 < found.task_return  # control: before, nothing is foraged


def test_a_task_of_which_a_robot_is_missing_does_not_go_on(drive):
    recording = replace(prepare_run(run_of(drive, ())), contract=drive.contract)
    with pytest.raises(TestudoError, match="expected all robots of the run"):
        RecordedTask.create(replace(recording, robots=recording.robots[:2]), drive.contract)


def test_a_policy_for_other_robots_does_not_go_on_with_the_task(drive):
    recording = replace(prepare_run(run_of(drive, ())), contract=drive.contract)
    foreign = replace(drive.artefact, contract=drive.contract.replace(robot="robomaster_s1"))
    with pytest.raises(TestudoError, match="found a policy for robomaster_s1, expected one for gritsbot_x"):
        recorded_task(recording, foreign)


def test_records_before_tasks_are_read(drive):
    values = json.loads(drive.records["r0"][0].encode())
    values = {key: value for key, value in values.items() if not key.startswith("task_")}
    data = json.dumps(values | {"schema": "testudo/tick/6"}).encode()
    record = TickRecord.decode(data, recorded=True)
    assert (record.task_values, record.task_age_s, record.task_contract) == ({}, 0.0, "")


def test_the_fleet_file_holds_the_task_and_no_goals(fleet):
    text = fleet.file.read_text()
    assert "goal" not in text
    assert fleet.robots[0].goal_world == fleet.robots[0].initial_position_world
    assert fleet.task["traits.level"] == [1.0, 2.0, 3.0]
    again = parse_fleet(fleet_text(fleet, fleet.file), fleet.file)
    assert (again.task, again.robots) == (fleet.task, fleet.robots)
    assert checked_safety_contracts(fleet)


def test_without_a_task_such_a_policy_is_refused(fleet):
    with pytest.raises(PolicyContractError, match=r"found .level., which is not .* needs it from a task node"):
        checked_safety_contracts(replace(fleet, task=None))
    with pytest.raises(FleetError, match="goal: missing"):
        parse_fleet(fleet.file.read_text().partition("task:")[0], fleet.file)
    mixed = fleet.file.read_text() + f"policies: {{gritsbot_x: {{policy: a.onnx, policy_sha256: {'ab' * 32}}}}}\n"
    with pytest.raises(FleetError, match="task: found with several policy files, expected one"):
        parse_fleet(mixed, fleet.file)
    assert load_fleet(fleet.file) == fleet


@pytest.mark.slow  # C MuJoCo for as many steps as the box needs to its goal: 15 s
def test_robots_push_a_recorded_box_to_its_goal_in_simulation(tmp_path):
    """In the run the box stands still before robots that just begin; a counterfactual goes on with both: it moves."""
    drive = Drive(make_pushing_fleet(tmp_path))
    box = drive.fleet.bodies[0]
    here = Pose(box.initial_position_world, box.initial_yaw, (0.0, 0.0))
    while drive.tick_count < 60:
        drive.live.on_pose(box.name, drive.now_s - 0.005, drive.now_s, here)
        drive.tick()
    run = run_of(drive, ())
    stamps = run.truth["r0"].stamp_s
    place = np.tile([*box.initial_position_world], (len(stamps), 1))
    still = Track(stamps, stamps, place, np.full(len(stamps), box.initial_yaw), np.zeros((len(stamps), 0)))
    recording = replace(prepare_run(replace(run, bodies={box.name: still})), contract=drive.contract)
    with pytest.raises(TestudoError, match="no pose of this body is recorded"):
        recorded_task(replace(recording, run=run), drive.artefact)
    task = recorded_task(recording, drive.artefact)
    variant = CounterfactualVariant("policy", drive.artefact, shielded=True, task=task)
    made = simulate_from(recording, [0.5], variant, HorizonSettings(horizon_s=6.0, draws=1))
    assert task.return_between(0.5, 6.5) < 0
    assert made.outcomes[0].task_return > 10  # 10 for the box at its goal
