"""Shipped policies and their cards: they load, say the same as their files, and are not stale; and how one is made."""

import importlib.util
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tyro
from hatchling.builders.wheel import WheelBuilder
from tests.policies.exporting.evaluations import EVALUATION
from tests.policies.quick import TINY

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import shipped_policies
from testudo_deploy.fleet.fleet import load_fleet
from testudo_policies.exporting import model_card, packaging
from testudo_policies.exporting.model_card import CardError, check_card, check_current, evaluate_command, train_command
from testudo_policies.train_config import TrainConfig, suggested

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = shipped_policies()


@pytest.fixture(scope="module")
def tool():
    """Return the program behind `make pretrained`."""
    spec = importlib.util.spec_from_file_location("pretrained", ROOT / "tools" / "pretrained.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_policy_loads_and_its_card_says_what_it_holds(name):
    folder = SHIPPED[name]
    card = check_card(folder)
    contract = PolicyArtefact.load(folder / "policy.onnx").contract
    assert name == card.scenario == contract.scenario
    assert card.contract_hash == contract.contract_hash
    fleet = load_fleet(folder / "fleet.yaml")
    assert (fleet.policy_sha256, len(fleet.robots)) == (card.sha256, card.team_size)


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_that_a_shipped_policy_relies_on_has_changed_since_its_training(name):
    check_current(SHIPPED[name] / "policy.onnx")


@pytest.mark.parametrize(
    ("change", "name"),
    [({"decision_ticks": 11}, "decision_ticks"), ({"provenance": {"task": {"reward_terms": ["x"]}}}, "reward_terms")],
)
def test_a_scenario_that_has_changed_is_noticed(change, name, monkeypatch):
    now = model_card.make_contract
    monkeypatch.setattr(model_card, "make_contract", lambda *given: now(*given).replace(**change))
    with pytest.raises(CardError, match=f"{name}.*: changed since its training"):
        check_current(SHIPPED["foraging"] / "policy.onnx")


def test_a_card_that_says_something_else_is_refused(tmp_path):
    folder = shutil.copytree(SHIPPED["foraging"], tmp_path / "foraging")
    values = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(values | {"decisions": 7}))
    with pytest.raises(CardError, match="decisions: differ from"):
        check_card(folder)


def test_the_page_is_that_of_the_cards(tool):
    assert tool.page(sorted(SHIPPED.values())) == tool.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        suggested(TrainConfig(scenario="rware", team_size=3, seed=4))[0],
        TrainConfig(scenario="crossing", algorithm="ippo", task_messages=False, curriculum=True, until="success=0.9"),
        TrainConfig(scenario="navigation", obstacles='[{"kind": "ball", "centre_world": [0, 0], "radius_m": 0.2}]'),
    ],
)
def test_the_command_of_a_card_trains_with_its_configuration(config):
    _, verb, scenario, *words = shlex.split(train_command(config))
    assert (verb, scenario) == ("train", config.scenario)
    given = tyro.cli(TrainConfig, args=words[:-2])
    assert suggested(replace(given, scenario=scenario))[0] == config


def test_the_evaluation_of_a_card_is_in_the_physics_of_its_training():
    said = evaluate_command(TrainConfig(scenario="push_box", physics="mjx", form="planar", memory=0), 50)
    assert said == "testudo evaluate push_box --layers all --episodes 50 --physics mjx --form planar"


def test_a_training_run_becomes_a_shipped_policy_by_one_call(tool, tiny_run, tmp_path, monkeypatch, capsys):
    """Of its figures those are taken that the run folder has, as the evaluation with all layers takes minutes."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    assert not tool.is_evaluated(run, TINY.team_size)
    own = replace(EVALUATION, team_size=TINY.team_size)
    found = [replace(own, policy=policy, layers=layers) for policy in tool.COLUMNS for layers in ("1", "all")]
    (run / "evaluation.json").write_text(json.dumps([one.to_dict() for one in found]))
    assert tool.is_evaluated(run, TINY.team_size)
    assert not tool.is_evaluated(run, TINY.team_size + 1)
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    for name, value in (("ROOT", tmp_path), ("SHIPPED", shipped)):
        monkeypatch.setattr(tool, name, value)
    monkeypatch.setattr(packaging, "_LOOP_STEPS", 100)
    folder = tool.ship(run, 10)
    card = check_card(folder)
    assert [path.name for path in shipped.iterdir()] == ["navigation"]
    assert card.decisions == TINY.decisions
    assert f"shipped shipped/navigation: {card.size_bytes:,} bytes" in capsys.readouterr().out
    assert "| success | 0.000 / 0.000 |" in tool.page([folder])


def test_the_wheel_holds_what_ships():
    names = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    inside = {
        f"testudo_policies/pretrained/{name}/{file}"
        for name in SHIPPED
        for file in ("policy.onnx", "fleet.yaml", "card.json")
    }
    assert inside <= names
