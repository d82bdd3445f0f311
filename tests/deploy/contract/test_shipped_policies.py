"""Policies that ship: what a bare name stands for, and that other paths stay as they are."""

from pathlib import Path

import pytest

from testudo_deploy.contract import shipped_policies as module
from testudo_deploy.contract.policy_header import ArtefactError
from testudo_deploy.contract.shipped_policies import policy_file, shipped_policies


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Let one policy ship, and return its folder; the current folder is an empty one."""
    folder, here = tmp_path / "shipped" / "chess", tmp_path / "here"
    folder.mkdir(parents=True)
    here.mkdir()
    (folder / "policy.onnx").write_bytes(b"x")
    monkeypatch.setattr(module, "shipped_policies", lambda: {"chess": folder})
    monkeypatch.chdir(here)
    return folder


def test_a_bare_name_stands_for_the_shipped_file(shipped):
    assert policy_file(Path("chess")) == shipped / "policy.onnx"


def test_what_has_that_name_here_wins(shipped):
    Path("chess").write_bytes(b"own")
    assert policy_file(Path("chess")) == Path("chess")


@pytest.mark.parametrize("path", ["chess.onnx", "runs/chess", "./../here/chess", "/nowhere"])
def test_paths_stay_as_they_are(shipped, path):
    assert policy_file(Path(path)) == Path(path)


def test_an_unknown_name_is_refused_with_what_ships(shipped):
    with pytest.raises(ArtefactError, match=r"draughts: no such file, and no policy .*; those that ship are chess$"):
        policy_file(Path("draughts"))


def test_policies_of_the_entry_points_are_found():
    found = shipped_policies()
    assert "foraging" in found
    assert all((folder / name).is_file() for folder in found.values() for name in ("policy.onnx", "fleet.yaml"))
