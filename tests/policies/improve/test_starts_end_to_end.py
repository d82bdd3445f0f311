"""A failed run becomes a regression test: found, saved, and met again without the shield, but not with it."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.analysis.incident.stories import ahead, driven, meeting, recording, story
from tests.policies.quick import TINY

from testudo_analysis.commands.incident import IncidentSelection, incident
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.evaluate import Episodes, evaluate
from testudo_policies.evaluation.evaluation import TRAINED
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config, save_config
from testudo_runs.recording.write import write_recording
from testudo_sim.go_to_goal import write_go_to_goal_policy
from testudo_sim.starts import load_starts, starts_text

pytestmark = pytest.mark.usefixtures("quick")

EPISODES = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run in which two robots drove into each other, and what `incident` made of it."""
    folder = tmp_path_factory.mktemp("failed")
    write_recording(recording(meeting(0.03)), folder / "run")
    status = incident(
        folder / "run",
        json=folder / "incidents.json",
        save_scenario=folder / "starts.yaml",
        choice=IncidentSelection(worst=1, draws=4),
    )
    assert status == 0
    write_go_to_goal_policy(folder / "policy.onnx", load_robot("gritsbot_x"))
    return folder


def test_the_contact_is_told_with_what_would_have_happened(folder):
    values = json.loads((folder / "incidents.json").read_text())
    (contact,) = values["incidents"]
    assert (contact["kind"], contact["robots"]) == ("contact", ["r0", "r1"])
    real, shielded, bare = contact["aftermath"]
    assert real["touched"] == 1
    assert (shielded["touched"], shielded["worlds"]) == (0, 4)
    assert bare["touched"] == 4
    assert shielded["interventions"] > 0.02  # the right of way already changes the command before the shield
    assert bare["interventions"] == 0
    assert "r0 drove towards r1" in contact["cause"]


def test_without_the_shield_the_recorded_commands_lead_where_the_robots_went(folder):
    values = json.loads((folder / "incidents.json").read_text())
    real, _, bare = values["incidents"][0]["aftermath"]
    assert bare["off_m"] < 0.1  # over half a metre, with scales drawn within a fifth
    assert abs(bare["separation_m"] - real["separation_m"]) < 0.03


def test_the_moment_before_is_a_start_file_of_robots_that_are_still_apart(folder):
    starts = load_starts(folder / "starts.yaml")
    (start,) = starts.starts
    places = np.array(start.position_world)
    assert np.linalg.norm(places[0] - places[1]) == pytest.approx(starts.least_distance_m)
    assert starts.least_distance_m > 0.5
    assert start.velocity[0][0] == pytest.approx(0.15, abs=0.01)
    assert starts.source.incident == "contact"
    assert "no goals" in starts.source.goals


def test_evaluation_from_there_meets_it_without_the_shield_and_not_with_it(folder, tmp_path):
    numbers = tmp_path / "evaluation.json"

    def contacts(shield):
        episodes = Episodes(EPISODES, starts=folder / "starts.yaml")
        status = evaluate([folder / "policy.onnx"], chosen=episodes, shield=shield, json=numbers)
        values = next(one for one in json.loads(numbers.read_text()) if one["policy"] == TRAINED)
        return status, values["episodes_with_contact"]

    assert contacts(shield=False) == (1, EPISODES)
    assert contacts(shield=True) == (0, 0)


def test_training_begins_a_share_of_its_worlds_there_and_keeps_the_starts_with_its_configuration(folder, tmp_path):
    text = starts_text(load_starts(folder / "starts.yaml"))
    config = replace(TINY, starts=text, team_size=2, starts_share=0.5)
    save_config(tmp_path, config)
    assert load_config(tmp_path) == config
    environment = build(config).environment
    reset_worlds = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), 64))
    moving = np.all(np.abs(environment.scene(reset_worlds).robots.velocity[0]) > 0.05, axis=0)
    assert 0.25 < moving.mean() < 0.75
    with pytest.raises(TestudoError, match=r"--starts: robots: found 2, the team has 3"):
        build(replace(config, team_size=3))


def test_a_run_in_which_nothing_went_wrong_has_nothing_to_save(tmp_path):
    whole = story(driven("r0", (0.0, 0.0), 0.0, ahead(0.1), 3.0), driven("r1", (0.0, 1.0), 0.0, ahead(0.1), 3.0))
    write_recording(recording(whole), tmp_path / "run")
    assert incident(tmp_path / "run", json=tmp_path / "incidents.json", choice=IncidentSelection(worst=0)) == 0
    assert json.loads((tmp_path / "incidents.json").read_text())["incidents"] == []
    with pytest.raises(TestudoError, match="found no incidents in this run"):
        incident(tmp_path / "run", save_scenario=tmp_path / "starts.yaml", choice=IncidentSelection(worst=0))


def test_an_incident_that_is_not_there_is_refused(folder):
    with pytest.raises(TestudoError, match="--incident: found 7, expected 0 to 0"):
        incident(folder / "run", choice=IncidentSelection(worst=0, incident=(7,)))
