"""A scenario in place of a policy: which names mean one, and what an evaluation of it runs."""

import json
from pathlib import Path

import pytest

from testudo_deploy.cli import main
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands import evaluate as verb
from testudo_policies.commands.driven_by_hand import ByHandOptions
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.learning.builder import obstacles_of_map


def test_a_name_is_a_file_before_a_policy_that_ships_before_a_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coverage").mkdir()
    named = {name: ByHandOptions().drives(Path(name)) for name in ("crossing_map", "foraging", "coverage")}
    assert named == {"crossing_map": True, "foraging": False, "coverage": False}
    assert ByHandOptions(by_hand=True).drives(Path("foraging"))
    with pytest.raises(TestudoError, match="--by-hand: found coverage, expected the name of a registered scenario"):
        ByHandOptions(by_hand=True).drives(Path("coverage"))
    with pytest.raises(TestudoError, match="--robot crazyflie_2x: policy"):
        ByHandOptions(robot="crazyflie_2x").drives(Path("policy.onnx"))


def test_a_scenario_is_evaluated_by_hand_on_a_map(tmp_path, monkeypatch, capsys):
    ran = []

    def found(environment, policy, *_, **__):
        ran.append((policy, len(environment.scenario.arena.obstacles), environment.team.size, environment.layers))
        return Evaluation.not_run(environment, "hand-written", "")

    monkeypatch.setattr(verb, "evaluate_policy", found)
    monkeypatch.setattr(verb, "compiled_programs", lambda _: None)
    numbers = tmp_path / "numbers.json"
    words = ["evaluate", "crossing_map", "--map", "camar_random_grid_20", "--team-size", "3", "--baselines", "none"]
    assert main([*words, "--json", str(numbers)]) == 0
    spec = load_robot("gritsbot_x")
    obstacles = obstacles_of_map("camar_random_grid_20", "crossing_map", spec, projection_parameters(spec))
    assert ran == [(None, len(obstacles), 3, "1")]
    assert obstacles
    assert len(json.loads(numbers.read_text())) == 1
    assert main(["evaluate", "foraging", "--map", "camar_random_grid_20"]) == 2
    assert "--map camar_random_grid_20: foraging has the map of its training" in capsys.readouterr().err
