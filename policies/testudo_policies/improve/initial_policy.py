"""Where fine-tuning begins: the checkpoint beside an artefact, else the weights in its graph, else anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
import onnx

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_policies.improve.onnx_weights import GraphError, matches, parameters_of_graph
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.train_config import TrainConfig

CHECKPOINT, GRAPH, ANEW = "checkpoint", "graph", "anew"
_BESIDE = ("", "training")
"""Where `testudo export` and `testudo demo` leave the checkpoints of an artefact, from its folder."""
_CRITIC_UPDATES = 12
"""First updates in which a critic that knows nothing learns alone."""


@dataclass(frozen=True)
class InitialPolicy:
    """A policy to go on from."""

    config: TrainConfig
    """Of its training."""
    source: str
    """`CHECKPOINT`, `GRAPH` or `ANEW`."""
    note: str
    """In words."""
    parameters: AgentParameters | None = field(default=None, repr=False)

    @property
    def warm_up(self) -> int:
        """Return in how many updates the critic learns alone."""
        return _CRITIC_UPDATES if self.source == GRAPH else 0


def find_initial_policy(artefact: PolicyArtefact, spec_file: Path) -> InitialPolicy:
    """Return where to go on from; the configuration's robot becomes ``spec_file``.

    A checkpoint or graph counts only if it answers the artefact's test vector as the artefact does.
    """
    config, known = config_of(artefact.contract)
    config = replace(config, robot=str(spec_file), trainer="testudo")
    for place in _BESIDE:
        folder = artefact.path.parent / place
        if (folder / "config.json").is_file():
            found = _from_checkpoint(folder, artefact.contract)
            if found is not None:
                return InitialPolicy(
                    replace(load_config(folder), robot=str(spec_file), trainer="testudo"),
                    CHECKPOINT,
                    f"the checkpoint in {folder}, critic included",
                    found,
                )
    if not known:
        return InitialPolicy(config, ANEW, "trained anew: the artefact does not say how its network was trained")
    try:
        parameters = _from_graph(artefact, config)
    except TestudoError as error:
        return InitialPolicy(config, ANEW, f"trained anew: no checkpoint beside the artefact, and {error}")
    return InitialPolicy(
        config,
        GRAPH,
        "the weights in the artefact's graph; the critic is not in it, and learns alone in the first updates",
        parameters,
    )


def config_of(contract: Contract) -> tuple[TrainConfig, bool]:
    """Return the configuration in an artefact's provenance, and whether there is one."""
    stored: Mapping[str, Any] = contract.provenance.get("config", {})
    names = {item.name for item in fields(TrainConfig)}
    asked = {name: value for name, value in stored.items() if name in names}
    config = replace(TrainConfig(), **asked) if asked else TrainConfig()
    return replace(
        config, scenario=contract.scenario, memory=contract.hidden_size, team_size=max(contract.team_size, 2)
    ), "width" in asked


def _from_checkpoint(folder: Path, contract: Contract) -> AgentParameters | None:
    """Return the parameters of a training run if they are those of the artefact."""
    try:
        workshop = build(load_config(folder))
        parameters = load_parameters(workshop, folder)
        return parameters if matches(workshop.agent, parameters, contract) else None
    except (TestudoError, ValueError, TypeError, KeyError):  # of other sizes or another version
        return None


def _from_graph(artefact: PolicyArtefact, config: TrainConfig) -> AgentParameters:
    workshop = build(config)
    blank = workshop.ppo.start(jax.random.key(config.seed)).parameters
    seen = min(config.decisions * config.team_size, 2**31)
    parameters = parameters_of_graph(onnx.load(artefact.path), blank, seen)
    # the identified robot may have another top speed; the artefact answers with the old one
    agent = replace(workshop.agent, speed_limit_m_s=artefact.contract.command.limit)
    if not matches(agent, parameters, artefact.contract):
        raise GraphError("the weights in its graph do not answer its test vector as it does")
    return parameters
