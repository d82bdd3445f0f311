"""Runs to look at: a film that plays, a window that keeps time."""

import contextlib
import itertools
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import imageio_ffmpeg
import mujoco
import numpy as np
import pytest
from PIL import Image

from testudo_analysis.rendering import interactive_viewer
from testudo_analysis.rendering.animation import Animation, AnimationScene, Trajectory, interpolate_quaternions
from testudo_analysis.rendering.render_run import RenderOptions, recorded_animation, render_run, write_video
from testudo_analysis.rendering.scene_model import body_poses, scene_model
from testudo_analysis.rendering.scene_renderer import SceneRenderer, working_backend
from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import body_up, from_angles
from testudo_hardware.links.wire import OdometryReading, fill_odometry
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.robot_bodies import Box
from testudo_runs.run_reader import RunError, Track, _read_truth

SPEC = load_robot("gritsbot_x")
ARENA = Arena((-1.6, -1.0), (1.6, 1.0))
GOALS = np.array([[1.0, 0.5], [-1.0, -0.5]])
SMALL = RenderOptions(width=160, height=112)
MOTION = Trajectory(
    np.array([0.0, 1.0]),
    np.array([[[-1.0, 0.0], [1.0, 0.0]], [[1.0, 0.5], [-1.0, -0.5]]]),
    np.array([[0.0, 3.0], [0.5, -3.0]]),
)
SHOW = Animation(AnimationScene((SPEC, SPEC), ARENA, GOALS), MOTION, "two <robots>")


@pytest.fixture
def gl():
    try:
        working_backend()
    except TestudoError as error:
        pytest.skip(str(error))


def film_frames(path):
    """Return size and pictures of an .mp4."""
    reader = imageio_ffmpeg.read_frames(str(path))
    width, height = next(reader)["size"]
    frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    return (width, height), frames


def test_an_mp4_shows_the_frames_one_after_the_other(gl, tmp_path):
    size, frames = film_frames(render_run(SHOW, tmp_path / "new" / "run.mp4", SMALL))
    assert size == (160, 112)
    assert len(frames) == 6
    with SceneRenderer(SHOW.scenery, (160, 112)) as renderer:
        first, last = (renderer.render(MOTION.moment(k)) for k in (0, 1))

    def near(film, picture):
        return np.abs(film.astype(int) - picture).mean()

    assert near(frames[0], first) < 3
    assert near(frames[0], first) < near(frames[0], last)
    assert near(frames[-1], last) < near(frames[-1], first)


def test_an_mp4_of_odd_sides_gets_even_ones(tmp_path):
    grey = np.full((33, 51, 3), 128, np.uint8)
    write_video([grey] * 3, tmp_path / "odd.mp4", (51, 33), 10.0)
    size, frames = film_frames(tmp_path / "odd.mp4")
    assert size == (52, 34)
    assert len(frames) == 3
    assert np.abs(frames[0][:30, :50].astype(int) - 128).max() <= 4


def test_without_an_encoder_an_mp4_is_refused_and_a_gif_still_works(gl, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(TestudoError, match=r"run.mp4: found no encoder.*imageio-ffmpeg, or write a .gif"):
        render_run(SHOW, tmp_path / "run.mp4", SMALL)
    with Image.open(render_run(SHOW, tmp_path / "run.gif", SMALL)) as image:
        assert image.n_frames == 6


def test_a_film_that_cannot_be_written_is_one_sentence(gl, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TestudoError, match=r"cannot be written: "):
        render_run(SHOW, tmp_path / "file" / "run.gif", SMALL)
    with pytest.raises(TestudoError, match=r"the video encoder failed: "):
        write_video([np.zeros((8, 8, 3), np.uint8)], tmp_path / "no" / "x.mp4", (8, 8), 1.0)


def test_one_goal_for_all_is_that_of_the_box():
    boxes = (Box("box", (0.4, 0.3, 0.2), 2.0),)
    scene = scene_model(AnimationScene((SPEC, SPEC), ARENA, np.array([[0.5, 0.1]] * 2), boxes))
    flat = [k for k in range(scene.ngeom) if scene.geom_size[k] == pytest.approx([0.2, 0.15, 0.001])]
    (mark,) = flat
    assert scene.geom_bodyid[mark] == 0
    assert scene.geom_pos[mark, :2] == pytest.approx([0.5, 0.1])


class Handle:
    """A viewer's handle that notes what is shown, until it has seen the run begin again."""

    def __init__(self, model, data, **_):
        self.cam, self.user_scn = mujoco.MjvCamera(), mujoco.MjvScene(model, 1000)
        self.data, self.places, self.trails, self.closed = data, [], [], False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def lock(self):
        return contextlib.nullcontext()

    def sync(self):
        self.places.append(self.data.mocap_pos.copy())
        self.trails.append(self.user_scn.ngeom)

    def is_running(self):
        x = [place[0, 0] for place in self.places]
        return not any(later < earlier for earlier, later in itertools.pairwise(x))


@pytest.mark.parametrize("speed", [2.0, 8.0])
def test_the_window_plays_the_run_again_and_again_until_it_is_closed(monkeypatch, speed):
    handles = []

    def launch_passive(*words, **options):
        assert options == {"show_left_ui": False, "show_right_ui": False}
        handles.append(Handle(*words))
        return handles[0]

    monkeypatch.setattr(interactive_viewer, "_viewer", lambda: SimpleNamespace(launch_passive=launch_passive))
    monkeypatch.setattr(interactive_viewer, "_PAUSE_S", 0.3)
    interactive_viewer.play(SHOW, speed)
    (handle,) = handles
    x = np.array([place[0, 0] for place in handle.places])
    assert np.all(np.diff(x[:-1]) >= 0)
    assert x[:-1].max() == pytest.approx(1.0)  # the end is shown
    assert x[-1] < 0.9  # and it begins again
    # whatever was drawn late: the robot was on its line
    assert [place[0, 1] for place in handle.places] == pytest.approx((x + 1) / 4)
    assert max(handle.trails) > 0
    assert handle.closed
    assert handle.cam.lookat[0] == pytest.approx(0.0)
    assert handle.cam.distance > 2


def test_a_window_that_cannot_open_is_told_at_once(monkeypatch):
    monkeypatch.setattr(interactive_viewer, "_PROBE", "import sys; sys.exit('no screen')")
    with pytest.raises(TestudoError, match=r"window here \(no screen\); write a film with --film"):
        interactive_viewer.play(SHOW)


def test_a_screen_is_x11_or_wayland(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not interactive_viewer.has_display()
    monkeypatch.setenv("DISPLAY", "")
    assert not interactive_viewer.has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert interactive_viewer.has_display()


def test_a_recorded_run_shows_the_truth_and_else_the_odometry(recorded):
    show = recorded_animation(recorded, ARENA)
    assert show.scenery.arena == ARENA
    assert show.scenery.goals_world == pytest.approx(np.array([robot.goal_world for robot in recorded.fleet.robots]))
    track = recorded.truth["r1"]
    k = 60
    when = track.stamp_s[0] + show.trajectory.time_s[k]
    for axis in range(2):
        expected = np.interp(when, track.stamp_s, track.position_world[:, axis])
        assert show.trajectory.position_world[k, 1, axis] == pytest.approx(expected, abs=1e-9)
    empty = Track(np.zeros(0), np.zeros(0), np.zeros((0, 2)), np.zeros(0), np.zeros((0, 2)))
    nothing = dict.fromkeys(recorded.robots, empty)
    real = recorded_animation(replace(recorded, truth=nothing), None)
    assert real.trajectory.position_world.shape[1:] == (3, 2)
    assert np.all(np.array(real.scenery.arena.high_world) > GOALS.max(axis=0) - 0.5)
    with pytest.raises(RunError, match="found no time with recorded poses of all robots"):
        recorded_animation(replace(recorded, truth=nothing, odometry=nothing), ARENA)


def test_a_recorded_task_shows_its_entities_and_no_goals(recorded):
    """In the fleet file of such a task the robots have no goals, and the prey is in what the task node said."""
    robots = tuple(replace(robot, goal_world=robot.initial_position_world) for robot in recorded.fleet.robots)
    fleet = replace(recorded.fleet, robots=robots, task={"prey_world": [0.1, 0.2]})
    said = {"r0": {"prey_position_world": [0.1, 0.2]}}
    scores = tuple({"stamp_s": float(k), "signals": said} for k in range(2))
    prey = Signal("prey_position_world", (2,), "m", "world", 1.0)
    show = recorded_animation(replace(recorded, fleet=fleet, task_scores=scores), ARENA, signals=(prey,))
    assert show.scenery.goals_world is None
    assert len(show.scenery.boxes) == 1
    assert show.trajectory.boxes_world[:, 0] == pytest.approx(np.tile([0.1, 0.2], (len(show.trajectory.time_s), 1)))


def tilted(angles):
    """Return quaternions (K, 4) of roll, pitch and yaw (K, 3) [rad]."""
    return from_angles(np.asarray(angles, float).T).T


def test_turns_between_samples_go_the_short_way_whatever_their_signs():
    ends = tilted([[0.0, 0.2, 3.1], [0.0, 0.2, -3.1], [0.0, 0.0, -3.0]])
    ends[1] *= -1
    found = interpolate_quaternions(np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]), ends)
    assert np.linalg.norm(found, axis=-1) == pytest.approx(1.0)
    assert abs(found[1] @ tilted([[0.0, 0.2, math.pi]])[0]) == pytest.approx(1.0, abs=1e-4)
    assert abs(found[2] @ ends[1]) == pytest.approx(1.0)


def test_a_drone_of_a_recorded_run_is_drawn_as_it_tilts(recorded):
    """Where the record has no attitude, and on the ground, all stand upright."""
    assert recorded_animation(recorded, ARENA).trajectory.quaternion_xyzw is None
    tracks = {}
    for name, track in recorded.truth.items():
        angles = np.stack([np.full(len(track.yaw), 0.3), np.zeros(len(track.yaw)), track.yaw], axis=-1)
        tracks[name] = replace(track, quaternion_xyzw=tilted(angles))
    show = recorded_animation(replace(recorded, truth=tracks), ARENA)
    for trajectory in (show.trajectory, show.trajectory.resampled(0.1)):
        _, turns = body_poses(show.scenery, trajectory.moment(-1))
        up = body_up(turns[:, [1, 2, 3, 0]].T)
        assert up[2] == pytest.approx(math.cos(0.3), abs=1e-4)


def test_the_plants_truth_of_a_drone_carries_its_attitude():
    spec, turn = load_robot("crazyflie_2x"), tilted([[0.2, -0.1, 0.7]])[0]
    blank = lambda *names: SimpleNamespace(**dict.fromkeys(names, 0.0))  # noqa: E731
    message = SimpleNamespace(
        header=SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0), frame_id=""),
        child_frame_id="",
        pose=SimpleNamespace(pose=SimpleNamespace(position=blank("x", "y", "z"), orientation=blank(*"xyzw"))),
        twist=SimpleNamespace(twist=SimpleNamespace(linear=blank("x", "y", "z"), angular=blank("x", "y", "z"))),
    )
    reading = OdometryReading(1.0, (0.0, 0.0, 1.0), 0.7, (0.3, 0.0, 0.0), quaternion_xyzw=tuple(turn))
    found = _read_truth(fill_odometry(message, "r0", spec, reading), "r0", spec)
    assert found.quaternion_xyzw == pytest.approx(tuple(turn))
    assert found.yaw == pytest.approx(0.7)
    assert found.tilt_rad > 0.2
    assert found.velocity == pytest.approx((0.3, 0.0, 0.0))
