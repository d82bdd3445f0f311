"""Curves in Weights & Biases, by a stand-in for its package."""

import json
import sys
from types import SimpleNamespace

import pytest

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.run_files import MetricsLog
from testudo_policies.learning.wandb_run import ask_for_wandb


@pytest.fixture
def library(monkeypatch):
    """Put a package in place of wandb, and return what it was told."""
    told = SimpleNamespace(begun=[], rows=[], ended=0, Error=ValueError)

    def finish():
        told.ended += 1

    def init(**options):
        told.begun.append(options)
        return SimpleNamespace(log=lambda values, step: told.rows.append((step, values)), finish=finish)

    told.init = init
    monkeypatch.setitem(sys.modules, "wandb", told)
    return told


def test_a_resumed_run_goes_on_in_the_same_run_with_each_update_once(library, tmp_path):
    ask_for_wandb(tmp_path, "teams")
    for updates in (1, 2):
        with MetricsLog(tmp_path, updates - 1, {"seed": 3}) as log:
            for update in range(1, updates + 1):
                log.write(update, 10 * update, 1.0, {"train/return": 1.0 * update})
    assert library.rows == [(10, {"train/return": 1.0}), (20, {"train/return": 2.0})]
    first, again = library.begun
    assert first["id"] == again["id"]
    assert (first["project"], first["config"], first["resume"]) == ("teams", {"seed": 3}, "allow")
    assert library.ended == 2
    ask_for_wandb(tmp_path, "teams")  # says nothing new
    assert json.loads((tmp_path / "wandb.json").read_text())["id"] == first["id"]
    with pytest.raises(TestudoError, match="--wandb: found 'others', expected 'teams'"):
        ask_for_wandb(tmp_path, "others")


def test_nobody_asked(library, tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        log.write(1, 10, 1.0, {"train/return": 1.0})
    assert library.begun == []


def test_without_account_or_package_it_is_one_sentence(library, tmp_path, monkeypatch):
    ask_for_wandb(tmp_path, "teams")

    def refuse(**_):
        raise library.Error("No API key configured.\nmore")

    library.init = refuse
    with pytest.raises(TestudoError, match=r"^--wandb: No API key configured.; without an account set WANDB_MODE=off"):
        MetricsLog(tmp_path, 0)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(TestudoError, match=r"--wandb: the package wandb is not installed; .*testudo\[wandb\]"):
        ask_for_wandb(tmp_path / "new", "teams")
    assert not (tmp_path / "new").exists()
