"""`testudo view`: what it takes, what it writes, what it refuses; and that it shows what is evaluated."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.deploy.run_messages import record
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.policies.quick import TINY
from tests.policies.rails import Rails, rail_environment

from testudo_analysis.rendering.scene_renderer import working_backend
from testudo_deploy.cli import main
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands import view as view_module
from testudo_policies.evaluation import episode_playback as playback
from testudo_policies.evaluation.episode_playback import play_episode
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, evaluate_policy
from testudo_policies.learning.builder import make_environment
from testudo_sim.environment import Environment

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("gritsbot_x")


@pytest.fixture
def gl():
    try:
        working_backend()
    except TestudoError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Return the run folder of two robots that drive for a second."""
    base = tmp_path_factory.mktemp("recording")
    fleet = make_tiny_fleet(base, 2, "gritsbot_x")
    return record(base / "run", fleet, 30)


def view(capsys, *words):
    """Run the verb and return what it printed, in one line."""
    status = main(["view", *map(str, words)])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    return "".join(shown.out.split("\n"))


@pytest.fixture
def played(monkeypatch):
    """Pretend that there is a screen; return what is shown on it."""
    monkeypatch.setenv("DISPLAY", ":0")
    shows = []
    monkeypatch.setattr(view_module, "play", lambda show, speed, camera: shows.append((show, speed, camera)))
    return shows


def test_a_recorded_run_becomes_a_film_and_a_page(gl, recording, capsys, tmp_path):
    film, page = tmp_path / "run.gif", tmp_path / "run.html"
    shown = view(capsys, recording, "--film", film, "--html", page, "--speed", "4")
    assert f"wrote {film}" in shown
    with Image.open(film) as image:
        assert image.size == (960, 672)
        assert image.n_frames == 4
    text = page.read_text(encoding="utf-8")
    assert "2 robots, 0.9 s" in text
    assert "recorded in run" in text
    assert 'id="timeline"' in text


def test_without_a_screen_a_film_is_written_beside_it(gl, recording, capsys):
    shown = view(capsys, recording, "--speed", "20")
    assert "no screen here" in shown
    assert (recording.parent / "run.mp4").stat().st_size > 1000


def test_the_folder_above_the_recording_does_as_well(recording, capsys, played):
    view(capsys, recording.parent, "--camera", "top")
    ((show, speed, camera),) = played
    assert (speed, camera) == (1.0, "top")
    assert show.trajectory.duration_s == pytest.approx(29 * 0.033, abs=0.04)


def test_a_recording_whose_policy_is_unreadable_is_shown_all_the_same(recording, capsys, played, monkeypatch):
    def refuse(*_, **__):
        raise TestudoError("policy.onnx: made by another version")

    monkeypatch.setattr(view_module, "PolicyArtefact", SimpleNamespace(load=refuse))
    assert "the arena is estimated from the motion" in view(capsys, recording)
    assert len(played[0][0].scenery.specs) == 2


@pytest.mark.slow
def test_a_training_run_shows_a_held_out_episode(tiny_run, capsys, played):
    view(capsys, tiny_run)
    ((show, *_),) = played
    assert len(show.scenery.specs) == TINY.team_size
    assert f"seed {HELD_OUT_SEED}" in show.title


def test_a_scenario_shows_its_hand_written_velocities(capsys, played):
    shown = view(capsys, "navigation", "--by-hand", "--team-size", "2", "--seed", "1000003")
    assert "navigation keeps the rules of scenarios" in shown
    assert "success after " in shown
    assert ", return " in shown
    ((show, *_),) = played
    assert show.title == "navigation, 2 gritsbot_x, seed 1000003, kinematic"


@pytest.mark.slow
def test_policy_file_and_training_run_show_the_same_episode(tiny_run, tiny_export, capsys, played):
    for source in (tiny_run, tiny_export.path):
        shown = view(capsys, source, "--team-size", "3", "--seed", "1000007")
        assert "navigation, 3 gritsbot_x, seed 1000007, kinematic" in shown
    (first, *_), (second, *_) = played
    assert len(first.scenery.specs) == 3
    assert first.trajectory.position_world[:90] == pytest.approx(second.trajectory.position_world[:90], abs=1e-3)


def straight(signals, hidden):
    """Return a velocity straight to the goal, at full speed."""
    offset = signals["goal_world"] - signals["control_point_world"]
    distance = np.sqrt(np.sum(np.square(offset), axis=-1, keepdims=True)) + 1e-6
    return 0.2 * offset / np.maximum(distance, 0.1), hidden


def test_an_episode_is_the_one_that_is_evaluated():
    environment: Environment = make_environment("navigation", SPEC, projection_parameters(SPEC), 2)
    seed = 1_000_003
    episode = play_episode(environment, straight, 0, seed)
    evaluation = evaluate_policy(environment, straight, 0, 1, seed)
    assert episode.success == (evaluation.success == 1)
    assert episode.success
    assert episode.time_s == pytest.approx(evaluation.time_to_success_s)
    place = episode.animation.trajectory.position_world
    apart = np.linalg.norm(place[1:, 0] - place[1:, 1], axis=-1)
    assert apart.min() == pytest.approx(evaluation.minimum_separation_m, abs=1e-5)
    assert np.diff(episode.animation.trajectory.time_s) == pytest.approx(SPEC.control_period_s)
    away = np.linalg.norm(place[-1] - episode.animation.scenery.goals_world, axis=-1)
    assert away.max() < 0.1


class Endless(Rails):
    """Rails without success."""

    def advance(self, task, before, after, keys):
        return replace(super().advance(task, before, after, keys), success=None)


def test_an_episode_without_success_names_none(tiny_run, capsys, played, monkeypatch):
    starts = (((-0.4, 0.0), (0.4, 0.0)),)
    rails = Endless(starts=starts, goals=starts, speeds=((0.0, 0.0),), horizon_s=0.4)
    episode = play_episode(rail_environment(rails), straight, 0, 5)
    assert episode.success is None
    monkeypatch.setattr(playback, "play_episode", lambda *_: episode)
    shown = view(capsys, tiny_run)
    assert "success" not in shown
    assert f": {episode.time_s:.1f} s" in shown


REFUSED = {
    "nothing": (["no"], "no: no such file, folder or scenario; give a recorded run, a policy.onnx, a tr"),
    "empty folder": (["empty"], "empty: neither a recorded run (run.json is missing) nor a training"),
    "no policy": (["file"], "file: truncated or not an ONNX file"),
    "ending": (["file", "--film", "x.avi"], "--film x.avi: found file type '.avi', expected one of .mp4"),
    "film nowhere": (["file", "--film", "no/x.gif"], "--film no/x.gif: folder no does not exist"),
    "page nowhere": (["file", "--html", "no/x.html"], "--html no/x.html: folder no does not exist"),
    "speed": (["file", "--speed", "0"], "--speed: found 0.0, expected a number above 0"),
    "robot of a recording": (["empty", "--robot", "crazyflie_2x"], "--robot crazyflie_2x: empty has its own robots"),
    "robot of a scenario": (
        ["predator_prey", "--robot", "crazyflie_2x"],
        "predator_prey: found crazyflie_2x, which flies",
    ),
    "seed of a recording": (["empty", "--seed", "3"], "--seed 3: empty is a recorded run; remove"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no policy at all")
    assert main(["view", *words]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert message in shown


def test_a_seed_out_of_range_is_refused(tiny_run, capsys):
    assert main(["view", str(tiny_run), "--seed", "-1", "--html", "/dev/null"]) == 2
    assert "--seed: found -1, expected 0 to" in capsys.readouterr().err
