"""Compiled programs stay in the user's cache folder, unless the user has chosen another."""

from pathlib import Path

import pytest

from testudo_deploy.files.compiled_programs import keep_compiled_programs

FOLDER, SIZE = "JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE"


@pytest.fixture
def environment(monkeypatch, tmp_path):
    values = {"XDG_CACHE_HOME": str(tmp_path)}
    monkeypatch.setattr("os.environ", values)
    return values


def test_programs_stay_in_the_users_cache_folder(environment, tmp_path):
    keep_compiled_programs()
    assert Path(environment[FOLDER]) == tmp_path / "testudo" / "programs"
    assert int(environment[SIZE]) > 0


@pytest.mark.parametrize("chosen", ["/elsewhere", ""])
def test_a_folder_that_the_user_has_chosen_stays(environment, chosen):
    environment[FOLDER] = chosen
    keep_compiled_programs()
    assert environment[FOLDER] == chosen


def test_nothing_is_kept_without_a_home_folder(environment, monkeypatch):
    def homeless():
        raise RuntimeError

    del environment["XDG_CACHE_HOME"]
    monkeypatch.setattr(Path, "home", homeless)
    keep_compiled_programs()
    assert FOLDER not in environment
