import numpy as np
import pytest
from PIL import Image

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.rendering import (
    PALETTE,
    RenderOptions,
    SceneRenderer,
    Trajectory,
    offscreen,
    render_run,
    working_backend,
)

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
    with SceneRenderer([SPEC, SPEC], ARENA, size=(320, 200), view="top") as renderer:
        picture = renderer.render(np.array([[-0.8, 0.0], [0.8, 0.5]]), np.zeros(2))
    assert picture.shape == (200, 320, 3)
    assert picture.dtype == np.uint8
    for colour, left, above in ((PALETTE[0], True, None), (PALETTE[1], False, True)):
        hue = np.array(colour) / np.sum(colour)
        share = picture / np.maximum(picture.sum(axis=2, keepdims=True), 1)
        rows, columns = np.nonzero(np.abs(share - hue).max(axis=2) < 0.06)
        assert len(rows) > 20
        assert (columns.mean() < 160) == left
        assert above is None or (rows.mean() < 100) == above


def test_the_heading_is_seen():
    with SceneRenderer([SPEC], ARENA, size=(320, 200), view="top") as renderer:
        east, north = (renderer.render(np.zeros((1, 2)), np.array([yaw])) for yaw in (0.0, 1.6))
    assert np.abs(east.astype(int) - north.astype(int)).max() > 100


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png"])
def test_a_run_becomes_a_file(tmp_path, ending):
    out = tmp_path / "new" / f"run{ending}"
    goals = np.array([[1.0, 0.5], [-1.0, -0.5]])
    assert render_run([SPEC] * 2, RUN, ARENA, out, goals, SMALL) == out
    with Image.open(out) as image:
        assert image.size == (160, 112)
        assert getattr(image, "n_frames", 1) == (1 if ending == ".png" else 6)


def test_a_wrong_ending_and_an_empty_run_are_refused(tmp_path):
    with pytest.raises(TestudoError, match=r"found the ending '.avi'"):
        render_run([SPEC], RUN, ARENA, tmp_path / "run.avi")
    empty = Trajectory(np.zeros(0), np.zeros((0, 2, 2)), np.zeros((0, 2)))
    with pytest.raises(TestudoError, match="no moment"):
        render_run([SPEC] * 2, empty, ARENA, tmp_path / "run.png")
    with pytest.raises(TestudoError, match="expected one for each of 3 robots"):
        render_run([SPEC] * 3, RUN, ARENA, tmp_path / "run.png", options=SMALL)


def test_without_opengl_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(offscreen, "BACKENDS", ("none",))
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    working_backend.cache_clear()
    try:
        with pytest.raises(TestudoError, match=r"\(none: .*MUJOCO_GL.*libegl1"):
            working_backend()
    finally:
        working_backend.cache_clear()
