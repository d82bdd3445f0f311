import mujoco
import numpy as np
import pytest
from PIL import Image

from testudo_analysis.rendering import scene_renderer
from testudo_analysis.rendering.animation import Animation, AnimationMoment, AnimationScene, Trajectory, arena_around
from testudo_analysis.rendering.render_run import RenderOptions, render_run
from testudo_analysis.rendering.scene_model import PALETTE, place_bodies, scene_model
from testudo_analysis.rendering.scene_renderer import SceneRenderer, working_backend
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.robot_bodies import Box

SPEC = load_robot("gritsbot_x")
ARENA = Arena((-1.6, -1.0), (1.6, 1.0))
SMALL = RenderOptions(width=160, height=112)
RUN = Trajectory(
    np.array([0.0, 1.0]),
    np.array([[[-1.0, 0.0], [1.0, 0.0]], [[1.0, 0.5], [-1.0, -0.5]]]),
    np.array([[0.0, 3.0], [0.5, -3.0]]),
)


@pytest.fixture(scope="module", autouse=True)
def _gl():
    try:
        working_backend()
    except TestudoError as error:
        pytest.skip(str(error))


def test_a_robot_is_drawn_in_its_colour_where_it_is():
    with SceneRenderer(AnimationScene((SPEC, SPEC), ARENA), size=(320, 200), view="top") as renderer:
        picture = renderer.render(AnimationMoment(np.array([[-0.8, 0.0], [0.8, 0.5]]), np.zeros(2)))
    assert picture.shape == (200, 320, 3)
    assert picture.dtype == np.uint8
    for colour, left, above in ((PALETTE[0], True, None), (PALETTE[1], False, True)):
        hue = np.array(colour) / np.sum(colour)
        share = picture / np.maximum(picture.sum(axis=2, keepdims=True), 1)
        rows, columns = np.nonzero(np.abs(share - hue).max(axis=2) < 0.06)
        assert len(rows) > 20
        assert (columns.mean() < 160) == left
        assert above is None or (rows.mean() < 100) == above


def test_a_base_is_a_box_on_wheels_within_its_circle():
    """Nothing of it is drawn beyond the radius that the shield keeps free, and it fills most of that."""
    base = load_robot("robomaster_s1")
    model = scene_model(AnimationScene((base,), ARENA))
    data = mujoco.MjData(model)
    place_bodies(data, AnimationScene((base,), ARENA), AnimationMoment(np.zeros((1, 2)), np.zeros(1)))
    mujoco.mj_forward(model, data)
    geoms = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] == model.body("r0").id]
    wheels = [geom for geom in geoms if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CYLINDER]
    assert len(wheels) == 4
    for wheel in wheels:  # they stand on the floor
        assert data.geom_xpos[wheel][2] == pytest.approx(model.geom_size[wheel][0])
    reach = []
    for geom in geoms:
        half = model.geom_size[geom]
        across = half if geom not in wheels else np.array([half[0], half[0], half[1]])
        turn = np.abs(data.geom_xmat[geom].reshape(3, 3))
        reach.append(np.linalg.norm((np.abs(data.geom_xpos[geom]) + turn @ across)[:2]))
    assert 0.9 * base.body_radius_m < max(reach) < 1.001 * base.body_radius_m


def test_the_heading_is_seen():
    with SceneRenderer(AnimationScene((SPEC,), ARENA), size=(320, 200), view="top") as renderer:
        east, north = (renderer.render(AnimationMoment(np.zeros((1, 2)), np.array([yaw]))) for yaw in (0.0, 1.6))
    assert np.abs(east.astype(int) - north.astype(int)).max() > 100


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png"])
def test_a_run_becomes_a_file(tmp_path, ending):
    out = tmp_path / "new" / f"run{ending}"
    goals = np.array([[1.0, 0.5], [-1.0, -0.5]])
    assert render_run(Animation(AnimationScene((SPEC, SPEC), ARENA, goals), RUN), out, SMALL) == out
    with Image.open(out) as image:
        assert image.size == (160, 112)
        assert getattr(image, "n_frames", 1) == (1 if ending == ".png" else 6)


def test_a_box_is_drawn_where_it_is_pushed():
    scenery = AnimationScene((SPEC,), ARENA, boxes=(Box("box", (0.4, 0.4, 0.2), 2.0),))
    with SceneRenderer(scenery, size=(320, 200), view="top") as renderer:
        left, right = (
            renderer.render(AnimationMoment(np.zeros((1, 2)), np.zeros(1), np.array([[x, 0.0]]), np.array([0.3])))
            for x in (-1.0, 1.0)
        )
    changed = np.nonzero(np.abs(left.astype(int) - right).max(axis=2).max(axis=0) > 60)[0]
    assert changed.min() < 90
    assert changed.max() > 230
    assert not np.any((changed > 130) & (changed < 190))


def test_resampling_turns_the_short_way_and_keeps_the_last_moment():
    turning = Trajectory(
        np.array([0.0, 1.0]), np.zeros((2, 1, 2)), np.array([[3.1], [-3.1]]),
        np.zeros((2, 1, 2)), np.array([[0.0], [1.0]]),
    )  # fmt: skip
    fine = turning.resampled(0.4)
    assert fine.time_s == pytest.approx([0.0, 0.4, 0.8, 1.0])
    assert np.all(np.cos(fine.yaw) < -0.99)
    assert fine.boxes_yaw[:, 0] == pytest.approx(fine.time_s)


def test_walls_are_drawn_around_a_run_that_has_none():
    arena = arena_around(RUN, np.array([[2.0, 0.0], [0.0, -3.0]]))
    assert arena.low_world == pytest.approx((-1.3, -3.3))
    assert arena.high_world == pytest.approx((2.3, 0.8))


def test_a_wrong_ending_and_a_show_that_does_not_fit_are_refused(tmp_path):
    with pytest.raises(TestudoError, match=r"found file type '.avi', expected one of .mp4, .gif"):
        render_run(Animation(AnimationScene((SPEC, SPEC), ARENA), RUN), tmp_path / "run.avi")
    empty = Trajectory(np.zeros(0), np.zeros((0, 2, 2)), np.zeros((0, 2)))
    with pytest.raises(TestudoError, match="found an empty trajectory"):
        Animation(AnimationScene((SPEC, SPEC), ARENA), empty)
    with pytest.raises(TestudoError, match="expected one for each of 3 robots"):
        Animation(AnimationScene((SPEC,) * 3, ARENA), RUN)
    with pytest.raises(TestudoError, match="poses of 0 boxes, expected one for each of 1 boxes"):
        Animation(AnimationScene((SPEC, SPEC), ARENA, boxes=(Box("box", (1, 1, 1), 1.0),)), RUN)


def test_without_opengl_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(scene_renderer, "BACKENDS", ("none",))
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    working_backend.cache_clear()
    try:
        with pytest.raises(TestudoError, match=r"\(none: .*MUJOCO_GL.*libegl1"):
            working_backend()
    finally:
        working_backend.cache_clear()


def test_a_drone_has_four_rotors_that_fill_the_circle_of_its_ball():
    """Nothing of it is drawn beyond the radius that the shield keeps free; the two front rotors are white."""
    drone = load_robot("crazyflie_2x")
    scenery = AnimationScene((drone,), Arena((-1.0, -1.0, 0.0), (1.0, 1.0, 2.0)))
    model = scene_model(scenery)
    data = mujoco.MjData(model)
    place_bodies(data, scenery, AnimationMoment(np.array([[0.0, 0.0, 1.0]]), np.zeros(1)))
    mujoco.mj_forward(model, data)
    discs = [
        geom
        for geom in range(model.ngeom)
        if model.geom_bodyid[geom] == model.body("r0").id and model.geom_rgba[geom][3] < 1
    ]
    assert len(discs) == 4
    places = data.geom_xpos[discs]
    reach = np.linalg.norm(places[:, :2], axis=1) + model.geom_size[discs, 0]
    assert reach == pytest.approx(drone.body_radius_m)
    assert {tuple(np.sign(np.round(place[:2], 6))) for place in places} == {(1, 1), (1, -1), (-1, 1), (-1, -1)}
    white = np.all(model.geom_rgba[discs, :3] == 1, axis=1)
    assert (places[white, 0] > 0).all()
    assert white.sum() == 2
    for geom in range(model.ngeom):
        if model.geom_bodyid[geom] == model.body("r0").id:
            assert abs(data.geom_xpos[geom][2] - 1.0) <= drone.body_height_m / 2
