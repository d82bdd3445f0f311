"""`testudo up` before the start: which fleet file and policy it takes, and its warnings."""

from pathlib import Path

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.admission.fleet_admission import load_policy
from testudo_deploy.commands import up as verb
from testudo_deploy.contract.shipped_policies import shipped_policies
from testudo_hardware.errors import TestudoError


class _ReachedError(TestudoError):
    pass


@pytest.mark.parametrize(("robot", "count"), [("crazyflie_2x", 1), ("gritsbot_x", 0)])
def test_thrust_that_may_not_do_is_told_once_before_the_start(tmp_path, monkeypatch, capsys, robot, count):
    def refuse(*_, **__):
        raise _ReachedError

    monkeypatch.setattr(verb, "run_fleet", refuse)
    fleet = make_tiny_fleet(tmp_path, robot=robot, lane_m=1.0)
    with pytest.raises(_ReachedError):
        verb.up(fleet.file, record=False)
    said = capsys.readouterr().out
    assert said.count(f"warning: {robot}: with the worst values of its file") == count
    assert said.count("warning: this fleet has no key") == 1
    assert said.count("warning: ") == count + 1


def test_a_shipped_policy_runs_with_the_fleet_file_beside_it(monkeypatch):
    started = {}

    def refuse(fleet, **_):
        started["fleet"] = fleet
        raise _ReachedError

    monkeypatch.setattr(verb, "run_fleet", refuse)
    with pytest.raises(_ReachedError):
        verb.up(policy=Path("foraging"), record=False)
    fleet, folder = started["fleet"], shipped_policies()["foraging"]
    assert (fleet.file, fleet.policy) == (folder / "fleet.yaml", folder / "policy.onnx")
    contract = load_policy(fleet, fleet.robots[0].spec).contract  # the fleet file pins this very policy
    assert len(fleet.robots) == contract.team_size


def test_without_a_fleet_file_nothing_starts(tmp_path):
    with pytest.raises(TestudoError, match="found neither --fleet nor --policy, expected one of them; those that ship"):
        verb.up()
    with pytest.raises(TestudoError, match="expected a fleet file there, or --fleet"):
        verb.up(policy=tmp_path / "policy.onnx")
