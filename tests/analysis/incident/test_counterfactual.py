"""The team goes on from a moment: with a policy or as told, and what cannot go on is refused with a sentence."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.incident.stories import SPEC, ahead, driven, meeting, recording, story
from tests.sim.real_data import utias_folder

from testudo_analysis.commands.replay import CounterfactualOptions, replay
from testudo_analysis.incident import IncidentKind, IncidentThresholds, find_incidents
from testudo_analysis.incident.incident_replay import merged, moment_before, replay_incidents, starts_of
from testudo_analysis.replay.counterfactual import (
    CounterfactualVariant,
    HorizonSettings,
    counterfactual_variants,
    simulate_from,
)
from testudo_analysis.replay.replayed_team import commands_from
from testudo_analysis.replay.variants import least_distances, recorded_outcome
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.write import write_recording
from testudo_sim.go_to_goal import write_go_to_goal_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "policy.onnx"
    write_go_to_goal_policy(path, SPEC)
    return path


def lanes():
    """Return two robots with goals ahead of them, side by side; told to drive slowly."""
    return story(
        driven("r0", (-0.6, 0.0), 0.0, ahead(0.03), 9.0, goal=(0.6, 0.0)),
        driven("r1", (-0.6, 0.8), 0.0, ahead(0.03), 9.0, goal=(0.6, 0.8)),
    )


def test_a_policy_takes_the_robots_to_their_goals_from_every_moment_in_every_world(tmp_path):
    """By way-points, which the tracking law of the contract turns into velocities at every tick."""
    told, policy = lanes(), tmp_path / "policy.onnx"
    write_go_to_goal_policy(policy, SPEC, waypoint=True)
    made = simulate_from(
        told,
        (1.0, 2.0),
        CounterfactualVariant("policy", PolicyArtefact.load(policy), shielded=False),
        HorizonSettings(16.0, 5),
    )
    real = recorded_outcome(told, 1.0, 6.0)[0]
    assert (real.arrived, real.touched, real.interventions) == (0, 0, None)
    assert [outcome.from_s for outcome in made.outcomes] == [1.0, 2.0]
    for outcome, paths in zip(made.outcomes, made.paths, strict=True):
        assert (outcome.worlds, outcome.arrived, outcome.touched) == (5, 5, 0)
        assert 4.0 < outcome.arrival_s < 15.0
        assert paths.position_world.shape[1:] == (2, 2, 5)
    starts = [paths.position_world[0, 0, 0, 0] for paths in made.paths]
    assert starts[1] - starts[0] == pytest.approx(0.03, abs=0.005)  # a second later at 3 cm/s


def test_the_first_world_has_the_dynamics_as_described_and_the_others_drawn_ones():
    told = meeting(0.6, seconds=6.0)
    made = simulate_from(told, (1.0,), CounterfactualVariant("told", None, shielded=False), HorizonSettings(4.0, 6))
    (outcome,), (paths,) = made.outcomes, made.paths
    real = recorded_outcome(told, 1.0, 4.0)[1].position_world[-1, :, :, 0]
    off = np.linalg.norm(paths.position_world[-1] - real[..., None], axis=0).mean(axis=0)
    assert off[0] < 0.01
    assert np.all(off[1:] > 2 * off[0])
    assert outcome.off_m == pytest.approx(np.median(off), abs=0.01)


def test_robots_without_recorded_commands_go_on_as_they_then_moved():
    told = meeting(0.6, seconds=6.0)
    silent = replace(told, robots=tuple(replace(robot, commands=None) for robot in told.robots))
    assert np.allclose(commands_from(silent, 1.0, 30), commands_from(told, 1.0, 30), atol=1e-3)


def test_the_least_distance_counts_heights_in_full_as_contacts_do():
    """Two drones, one 0.30 m above the other, in the second world 0.05 m aside as well; one alone has no distance."""
    places = np.zeros((1, 3, 2, 2))
    places[0, 2, 1], places[0, 0, 1] = 0.30, [0.0, 0.05]
    np.testing.assert_allclose(least_distances(places), [[0.30, math.hypot(0.30, 0.05)]])
    assert np.isinf(least_distances(places[:, :, :1])).all()


@pytest.mark.parametrize(
    ("ahead_", "named"), [(HorizonSettings(0.0), "--horizon"), (HorizonSettings(1.0, 0), "--draws")]
)
def test_no_time_and_no_worlds_are_refused(ahead_, named):
    with pytest.raises(TestudoError, match=named):
        simulate_from(meeting(0.6), (1.0,), CounterfactualVariant("told", None, shielded=False), ahead_)


def test_a_policy_for_other_robots_or_without_goals_is_refused(policy, tmp_path):
    write_go_to_goal_policy(tmp_path / "other.onnx", load_robot("turtlebot4"))
    with pytest.raises(TestudoError, match="found a policy for turtlebot4, expected one for gritsbot_x"):
        simulate_from(
            lanes(), (1.0,), counterfactual_variants(lanes(), tmp_path / "other.onnx")[0], HorizonSettings(1.0, 1)
        )
    with pytest.raises(TestudoError, match="no goals are recorded"):
        simulate_from(meeting(0.6), (1.0,), counterfactual_variants(meeting(0.6), policy)[0], HorizonSettings(1.0, 1))


def test_the_ways_of_a_run_without_a_policy_are_its_commands():
    assert [(way.name, way.shielded) for way in counterfactual_variants(meeting(0.6), None)] == [
        ("commands, shield", True),
        ("commands, no shield", False),
    ]
    assert [way.shielded for way in counterfactual_variants(meeting(0.6), None, shield=False)] == [False]


def test_the_verb_goes_on_from_moments_of_an_imported_run(tmp_path, capsys):
    write_recording(recording(meeting(0.1, seconds=6.0)), tmp_path / "run")
    branch = CounterfactualOptions(start=(1.0, 1.5), shield=False, horizon=4.0, draws=2)
    status = replay(tmp_path / "run", mode="counterfactual", branch=branch, json=tmp_path / "replay.json")
    assert status == 0
    rows = json.loads((tmp_path / "replay.json").read_text())["counterfactual"]
    assert [(row["from_s"], row["way"]) for row in rows] == [
        (1.0, "what happened"),
        (1.5, "what happened"),
        (1.0, "commands, no shield"),
        (1.5, "commands, no shield"),
    ]
    assert all(row["touched"] == row["worlds"] for row in rows)
    assert "From 1.50 s on, 4.0 s ahead" in capsys.readouterr().out
    with pytest.raises(TestudoError, match="--from: found nothing"):
        replay(tmp_path / "run", mode="counterfactual")
    with pytest.raises(TestudoError, match=r"--from: found 60 s, expected times .* r0 0\.0 to 6\.0 s"):
        replay(tmp_path / "run", mode="counterfactual", branch=CounterfactualOptions(start=(60.0,)))


def test_the_team_goes_on_from_when_all_were_still_apart():
    told = meeting(0.05)
    bounds = IncidentThresholds.of(told)
    contact = next(item for item in find_incidents(told, bounds) if item.kind is IncidentKind.CONTACT)
    from_s = moment_before(told, contact, bounds)
    assert from_s == pytest.approx(contact.at_s - 3.0, abs=0.26)
    slow = meeting(0.05, speed=0.05, seconds=16.0)  # three seconds before, these are near already
    contact = next(item for item in find_incidents(slow, bounds) if item.kind is IncidentKind.CONTACT)
    from_s = moment_before(slow, contact, bounds)
    places = [robot.trajectory.at(np.array([from_s]))[0][0] for robot in slow.robots]
    assert math.dist(*places) >= bounds.near_m
    assert contact.at_s - from_s < 6.0


def test_start_files_of_several_incidents_are_one_and_of_other_robots_are_none():
    told = meeting(0.05)
    bounds = IncidentThresholds.of(told)
    (contact,) = find_incidents(told, bounds)
    starts = starts_of(told, contact, bounds)
    both = merged([starts, replace(starts, horizon_s=99.0)])
    assert (len(both.starts), both.horizon_s) == (2, 99.0)
    with pytest.raises(TestudoError, match="expected the same robots"):
        merged([starts, replace(starts, robots=("r0", "r7"))])


@pytest.mark.slow
def test_two_real_robots_that_touched_do_so_again_without_the_shield_and_not_with_it():
    """UTIAS run 6 after 842 s: motion capture has two iRobot Create 0.330 m apart, their bodies are 0.34 m across."""
    folder, robots = utias_folder(), {}
    for number in (3, 5):
        seen, told = (np.loadtxt(folder / f"Robot{number}_{name}.dat") for name in ("Groundtruth", "Odometry"))
        begin = np.loadtxt(folder / "Robot1_Groundtruth.dat", max_rows=1)[0] + 799.0
        seen, told = (rows[(rows[:, 0] > begin) & (rows[:, 0] < begin + 60)] for rows in (seen, told))
        pose, twist = np.zeros((len(seen), 7)), np.zeros((len(told), 6))
        pose[:, :2], pose[:, 5], pose[:, 6] = seen[:, 1:3], np.sin(seen[:, 3] / 2), np.cos(seen[:, 3] / 2)
        twist[:, 0], twist[:, 5] = told[:, 1], told[:, 2]
        robots[f"robot{number}"] = RobotRecording(
            f"robot{number}",
            "irobot_create",
            {
                "pose": Series(seen[:, 0] - begin, pose, None, "world"),
                "command": Series(told[:, 0] - begin, twist, None, "base_link"),
            },
        )
    real = prepare(Recording(robots, 0))
    bounds = IncidentThresholds.of(real)
    contact = next(item for item in find_incidents(real, bounds) if item.kind is IncidentKind.CONTACT)
    assert contact.value == pytest.approx(0.330, abs=0.001)
    (aftermath,) = replay_incidents(real, [contact], counterfactual_variants(real, None), bounds, draws=4)
    happened, shielded, bare = aftermath.incident.aftermath
    assert (happened.touched, shielded.touched) == (1, 0)
    assert bare.touched >= 3


@pytest.mark.parametrize(("beside", "touched"), [(0.1, 1), (0.2, 0)])
def test_contacts_of_the_real_run_are_counted_from_where_bodies_touch(beside, touched):
    outcome, _ = recorded_outcome(meeting(beside), 1.0, 6.0)
    assert (outcome.touched, outcome.contacts > 0) == (touched, bool(touched))
