"""Axes of other conventions become those of REP-103: hand-made cases, and rotation matrices as an oracle."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from testudo_runs.importing.mapping.axes import CONVENTIONS, in_rep103, table_in_rep103

MATRICES = {  # our axes in theirs, row by row: world and body
    "ned": ([[0, 1, 0], [1, 0, 0], [0, 0, -1]], [[1, 0, 0], [0, -1, 0], [0, 0, -1]]),
    "y_up": ([[1, 0, 0], [0, 0, -1], [0, 1, 0]], [[1, 0, 0], [0, 0, -1], [0, 1, 0]]),
    "unity": ([[0, 0, 1], [-1, 0, 0], [0, 1, 0]], [[0, 0, 1], [-1, 0, 0], [0, 1, 0]]),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_vectors_rates_and_attitudes_are_those_of_the_matrices(name):
    world, body = (np.array(matrix, float) for matrix in MATRICES[name])
    rng = np.random.default_rng(0)
    attitude = Rotation.random(50, rng=rng)
    place, velocity, rates = rng.normal(size=(3, 50, 3))
    names = ("x", "y", "z", "vx", "vy", "vz", "wx", "wy", "wz")
    channels = dict(zip(names, np.hstack([place, velocity, rates]).T, strict=True))
    found, turned = in_rep103(channels, attitude.as_quat(), name, velocity_in_world=False)
    np.testing.assert_allclose(np.stack([found[k] for k in "xyz"], 1), place @ world.T, atol=1e-12)
    np.testing.assert_allclose(np.stack([found[f"v{k}"] for k in "xyz"], 1), velocity @ body.T, atol=1e-12)
    spin = np.linalg.det(body) * rates @ body.T  # an axial vector
    np.testing.assert_allclose(np.stack([found[f"w{k}"] for k in "xyz"], 1), spin, atol=1e-12)
    expected = world @ attitude.as_matrix() @ body.T
    np.testing.assert_allclose(Rotation.from_quat(turned).as_matrix(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "quaternion", "place", "ahead", "heading_deg"),
    [
        (
            "ned",
            Rotation.from_euler("z", 0, degrees=True),
            (1, 0, -2),
            (0, 1, 2),
            90,
        ),  # looks north
        ("ned", Rotation.from_euler("z", 90, degrees=True), (0, 1, 0), (1, 0, 0), 0),  # looks east
        ("y_up", Rotation.from_euler("y", 30, degrees=True), (1, 2, -3), (1, 3, 2), 30),
        ("unity", Rotation.from_euler("y", 30, degrees=True), (1, 2, 3), (3, -1, 2), -30),  # turns to the right
    ],
)
def test_places_and_headings_by_hand(name, quaternion, place, ahead, heading_deg):
    row = np.array([[*place, *quaternion.as_quat()]], float)
    (found,) = table_in_rep103("pose", row, name, velocity_in_world=False)
    np.testing.assert_allclose(found[:3], ahead, atol=1e-12)
    forward, up = Rotation.from_quat(found[3:]).apply([[1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(up, [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(np.degrees(np.arctan2(forward[1], forward[0])), heading_deg, atol=1e-9)
