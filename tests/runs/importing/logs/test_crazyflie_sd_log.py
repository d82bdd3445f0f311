"""Logs of the Crazyflie's SD card, against the CSV that others made of one, and against logs made here."""

import numpy as np
import pytest
from tests.runs.importing.made_logs import BLOCK_VARIABLES, block_log, event_log
from tests.sim.real_data import crazyflie_folder

from testudo_runs.importing.logs.crazyflie_sd_log import looks_like_usd, read_usd, tick_unit
from testudo_runs.importing.logs.text_log import read_text
from testudo_runs.importing.mapping.column_conversion import (
    FileLosses,
    from_angles,
    into_body,
    missing_columns,
    unpacked,
    values_of,
)
from testudo_runs.importing.mapping.mapping_file import load_map


def read(tmp_path, data):
    file = tmp_path / "log.bin"
    file.write_bytes(data)
    losses = FileLosses(file)
    return read_usd(file, losses), [loss.why for loss in losses.all()]


def test_the_csv_that_was_made_of_a_log_holds_the_same_numbers():
    folder = crazyflie_folder()
    file = folder / "swap_sss_00_cf50.usddeck.bin"
    losses = FileLosses(file)
    (binary,) = read_usd(file, losses)
    ways, kind = load_map("crazyflie_usd").usd[0].roles, load_map("crazyflie_csv").text[0]
    text = read_text(folder / "swap_sss_00_cf50.csv", kind, losses)
    np.testing.assert_array_equal(binary.time_ns, text.columns[0] * 1000)  # headed ms, but microseconds
    for role, (way,) in kind.roles.items():
        found, _ = values_of(role, next(one for one in ways[role] if not missing_columns(one, binary)), binary, losses)
        np.testing.assert_allclose(found, values_of(role, way, text, losses)[0], rtol=0, atol=1e-14)
    targets, _ = values_of("setpoint", ways["setpoint"][0], binary, losses)
    np.testing.assert_allclose(targets[5, :3], [0.177, 0.176, 1.016], atol=1e-12)  # millimetres in the log
    assert losses.all() == []


def test_blocks_of_any_number_of_variables_are_read(tmp_path):
    data = block_log(100)
    assert looks_like_usd(data)
    assert data[0] == len(BLOCK_VARIABLES)  # a real one begins with '#' because it has 35 of them
    (table,), lost = read(tmp_path, data)
    assert lost == []
    np.testing.assert_array_equal(table.time_ns, np.arange(100) * 10_000_000)
    np.testing.assert_array_equal(table.columns[3], np.arange(100))


def test_milliseconds_and_microseconds_are_told_apart_and_a_full_counter_starts_again(tmp_path):
    assert tick_unit(np.arange(0, 100, 10)) == 1_000_000
    assert tick_unit(np.arange(0, 100_000, 10_000)) == 1_000
    (table,), _ = read(tmp_path, block_log(100, first=(1 << 32) - 500_000))
    np.testing.assert_array_equal(np.diff(table.time_ns), 10_000_000)


@pytest.mark.parametrize("version", [1, 2])
def test_events_of_both_versions_are_read(tmp_path, version):
    tables, lost = read(tmp_path, event_log(version))
    assert lost == []
    state, battery, mark = tables
    assert (len(state), len(battery), len(mark)) == (100, 10, 10)
    np.testing.assert_array_equal(state.time_ns, np.arange(100) * 10_000_000)
    np.testing.assert_array_equal(battery.time_ns, np.arange(10) * 100_000_000)
    ways, losses = load_map("crazyflie_usd").usd[0].roles, FileLosses(tmp_path)
    pose, _ = values_of("pose", next(way for way in ways["pose"] if not missing_columns(way, state)), state, losses)
    np.testing.assert_allclose(pose[50, :3], [0.1, 0.2, 0.5], atol=1e-6)
    # firmware: pitch counts nose up, REP-103 nose down; the nose at yaw 90 deg points to y and 30 deg down
    nose = into_body(np.eye(3), np.repeat(pose[:1, 3:], 3, axis=0))[:, 0]
    np.testing.assert_allclose(nose, [0, np.cos(np.pi / 6), -np.sin(np.pi / 6)], atol=1e-6)
    motors, _ = values_of(
        "motors", next(way for way in ways["motors"] if not missing_columns(way, state)), state, losses
    )
    np.testing.assert_allclose(motors[0], [0.0876, 0.0876, 0, 0.1597], atol=2e-4)  # 0.0875 N in a real log at 44125


@pytest.mark.parametrize("seed", range(3))
def test_packed_quaternions_come_back_within_their_resolution(seed):
    quaternions = np.random.default_rng(seed).normal(size=(200, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    found = unpacked(np.array([packed(q) for q in quaternions], float))
    same = np.abs((found * quaternions).sum(axis=1))
    step = 0.5 * np.sqrt(0.5) / 511  # three elements are off by it, the largest by at most the sum of the three
    assert (same > 1 - (3 + 9) / 2 * step**2).all()
    assert np.isnan(unpacked(np.array([np.nan, -1.0, 0.5, 2.0**32]))).all()
    assert np.isnan(unpacked(np.array([float((3 << 30) | 0x1FF | 0x1FF << 10 | 0x1FF << 20)]))).all()


def test_angles_turn_about_the_fixed_axes():
    quaternion = from_angles(*np.radians([[90.0], [0.0], [90.0]]))
    np.testing.assert_allclose(into_body(np.array([[0.0, 0.0, 1.0]]), quaternion), [[0, 1, 0]], atol=1e-12)
    np.testing.assert_allclose(into_body(np.array([[0.0, 1.0, 0.0]]), quaternion), [[1, 0, 0]], atol=1e-12)


def packed(quaternion):
    """Pack as the firmware does: the index of the largest element, then sign and size of each other."""
    largest = int(np.abs(quaternion).argmax())
    bits = largest
    for k in range(4):
        if k != largest:
            negative = (quaternion[k] < 0) != (quaternion[largest] < 0)
            bits = (bits << 10) | (int(negative) << 9) | int(511 * abs(quaternion[k]) / np.sqrt(0.5) + 0.5)
    return bits
