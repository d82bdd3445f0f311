"""Where real recordings lie, for tests that need them; they skip with a reason where the folder is absent."""

import os
from pathlib import Path

import pytest

_DATA = Path(os.environ.get("TESTUDO_REAL_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
"""Beside the repository, or where the environment says."""


def utias_folder():
    """Return the folder of the five ground robots."""
    return _folder("mrclam6")


def crazyflie_folder():
    """Return the folder of the swarm flights."""
    return _folder("crazyflie_swarm")


def _folder(name):
    if not (_DATA / name).is_dir():
        pytest.skip(f"no real recordings: {_DATA / name} is absent; TESTUDO_REAL_DATA names another folder")
    return _DATA / name
