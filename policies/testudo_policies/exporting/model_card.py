"""The model card of a policy that ships: what was trained, how, and what held-out episodes found.

All but the date is read from the policy file, so that card and file cannot say different things.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import CARD_FILE, POLICY_FILE
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import read_as
from testudo_policies.evaluation.evaluation import TRAINED, UNTRAINED, Evaluation
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.builder import build
from testudo_policies.train_config import TrainConfig
from testudo_sim.physics_choice import PhysicsChoice

SCHEMA = "testudo/card/1"
LICENCE = "Apache-2.0"
LAYERS = ("1", "all")
_BESIDE = (TRAINED, HAND_WRITTEN, UNTRAINED)
_DECLARED = (
    "version", "robot_spec", "signals", "command", "hidden_size", "control_period_s", "decision_ticks", "hold_rule",
    "dead_man_s", "arena", "shield", "contract_hash", "task_hash",
)  # fmt: skip


class CardError(TestudoError):
    """A policy file or its card says too little, or they say different things."""


@dataclass(frozen=True)
class ModelCard:
    """Facts of a policy file."""

    schema: str
    scenario: str
    robot: str
    team_size: int
    command: str  # type of the command, as in the contract
    trainer: str
    algorithm: str
    memory: int
    seed: int
    decisions: int  # that the training took, over all worlds
    trained_by: str  # command line
    evaluated_by: str  # command line
    sources: str  # commit of the sources
    versions: dict[str, str]
    sha256: str
    size_bytes: int
    contract_hash: str
    evaluation: dict[str, Any]  # by name, as `Evaluation.to_dict`
    date: str  # YYYY-MM-DD, when the card was made
    licence: str

    def found(self, policy: str, layers: str) -> Evaluation:
        """Return the evaluation of the trained policy, or of one of those beside it, with layer 1 or all layers.

        Raises:
            CardError: there is none.
        """
        for values in self.evaluation.values():
            own = (values["policy"], values["layers"], values["team_size"]) == (policy, layers, self.team_size)
            if own and not values["absent"]:
                return Evaluation.from_dict(values)
        raise CardError(f"{self.scenario}: no evaluation of {policy}, layers {layers}, {self.team_size} robots")


def card_of(policy: Path, date: str) -> ModelCard:
    """Return the card of a policy file.

    Raises:
        CardError: the file holds no training configuration, no evaluation of the trained, the hand-written and the
            untrained policy with layer 1 and with all layers, or it cannot be trained again by one command.
        TestudoError: the file is refused.
    """
    artefact = PolicyArtefact.load(policy)
    contract, provenance = artefact.contract, artefact.contract.provenance
    config: TrainConfig = read_as(TrainConfig, provenance.get("config"), f"{policy}: provenance.config", CardError)
    card = ModelCard(
        schema=SCHEMA,
        scenario=contract.scenario,
        robot=contract.robot,
        team_size=contract.team_size,
        command=contract.command.type,
        trainer=config.trainer,
        algorithm=config.algorithm,
        memory=contract.hidden_size,
        seed=config.seed,
        decisions=provenance["updates"] * config.worlds * config.rollout,
        trained_by=train_command(config),
        evaluated_by=evaluate_command(config, next((one["episodes"] for one in contract.evaluation.values()), 0)),
        sources=provenance["git"],
        versions=provenance["versions"],
        sha256=artefact.sha256,
        size_bytes=policy.stat().st_size,
        contract_hash=contract.contract_hash,
        evaluation=contract.evaluation,
        date=date,
        licence=LICENCE,
    )
    for name in _BESIDE:
        for layers in LAYERS:
            card.found(name, layers)
    return card


def train_command(config: TrainConfig) -> str:
    """Return the command line that trains with a configuration.

    Raises:
        CardError: it needs a file: a robot's, one of starts, or a teacher's run.
    """
    for what, needed in (
        (f"robot file {config.robot}", config.robot.endswith(".toml")),
        ("file of starts", bool(config.starts)),
        ("run as its teacher", config.teacher not in ("", HAND_WRITTEN)),
    ):
        if needed:
            raise CardError(f"{config.scenario}: was trained with a {what}, expected none, as the card names no file")
    names = [field.name for field in fields(config) if field.name != "scenario"]
    return shlex.join(
        ["testudo", "train", config.scenario, *_options(config, names), "--run", f"runs/{config.scenario}"]
    )


def evaluate_command(config: TrainConfig, episodes: int) -> str:
    """Return the command line that evaluates the shipped policy in the physics of its training."""
    options = _options(config, [field.name for field in fields(PhysicsChoice)])
    chosen = ["--layers", "all", "--episodes", str(episodes), *options]
    return shlex.join(["testudo", "evaluate", config.scenario, *chosen])


def _options(config: TrainConfig, names: Sequence[str]) -> list[str]:
    """Return the options of a configuration that differ from the defaults, as they are written on the command line."""
    words: list[str] = []
    for name in names:
        value, option = getattr(config, name), name.replace("_", "-")
        if value == getattr(TrainConfig, name):
            continue
        words += (
            [f"--{option}" if value else f"--no-{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
        )
    return words


def write_card(card: ModelCard, folder: Path) -> None:
    """Write a card into the folder of its policy."""
    write_whole(folder / CARD_FILE, json.dumps(asdict(card), indent=2, allow_nan=False) + "\n")


def read_card(folder: Path) -> ModelCard:
    """Return the card in the folder of a policy.

    Raises:
        CardError: it is missing, or has other fields.
    """
    path = folder / CARD_FILE
    try:
        values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CardError(f"{path}: cannot be read: {error}; make it with `make pretrained`") from error
    card: ModelCard = read_as(ModelCard, values, str(path), CardError)
    return card


def check_card(folder: Path) -> ModelCard:
    """Return the card of a shipped policy; raises `CardError` where it and the policy file differ."""
    card = read_card(folder)
    own = card_of(folder / POLICY_FILE, card.date)
    other = [field.name for field in fields(card) if getattr(card, field.name) != getattr(own, field.name)]
    if other:
        raise CardError(f"{folder / CARD_FILE}: {', '.join(other)}: differ from {POLICY_FILE}; run `make pretrained`")
    return card


def check_current(policy: Path) -> None:
    """Compare a policy file with what its scenario, its robot and the shield declare now.

    Raises:
        CardError: they have changed since the training, so that file and figures are stale.
    """
    contract = PolicyArtefact.load(policy).contract
    config: TrainConfig = read_as(TrainConfig, contract.provenance.get("config"), f"{policy}: config", CardError)
    now = make_contract(build(config), [])
    changed = [name for name in _DECLARED if getattr(contract, name) != getattr(now, name)]
    before, after = contract.provenance["task"], now.provenance["task"]
    changed += [name for name in after if before.get(name) != after[name]]
    if changed:
        raise CardError(
            f"{policy}: {', '.join(changed)}: changed since its training; train it again and ship it with "
            f'`make pretrained ARGS="runs/{contract.scenario}"`'
        )
