"""Makes a policy file of a foreign ONNX policy: composes the graph, proves it, and writes it with its contract."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import onnx
from onnx import helper

from testudo_deploy.contract.contract import Contract, Signal
from testudo_deploy.contract.onnx_policy import open_session
from testudo_deploy.contract.policy_header import read_header
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT, graph_inputs, graph_outputs
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_policies.exporting.graph_reduction import BATCH, SLOTS
from testudo_policies.exporting.onnx_export import ExportReport, write_proven
from testudo_policies.exporting.packaging import make_contract
from testudo_policies.exporting.parity import random_inputs
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.train_config import TrainConfig
from testudo_policies.wrapping.foreign_policy import IR_VERSION, PREFIX, ForeignPolicy, load_foreign_policy
from testudo_policies.wrapping.observation_graph import GraphBuilder, add_command, add_observation
from testudo_policies.wrapping.reference import reference_step
from testudo_policies.wrapping.wrap_file import WrapError, WrapFile, action_size, check_parts, observation_size
from testudo_sim.environment import Environment

_LOOP_STEPS, _LOOP_WORLDS = 100, 2
_EXAMPLE_ROWS = 4
_EXAMPLE_DECISION = 10  # decision whose inputs become the test vector; robots then move


def wrap_policy(
    foreign_file: Path, wrap: WrapFile, path: Path, *, loop_steps: int = _LOOP_STEPS
) -> tuple[ExportReport, TrainingComponents]:
    """Write the policy file ``path``; return the report, and the scenario in which it was driven for the proof.

    The composed graph must equal the file itself, run by the runtime on observations that NumPy makes, on more than
    10,000 inputs, and along closed loops of ``loop_steps`` decisions in the scenario; 0 drives none.

    Raises:
        WrapError: the description does not fit the graph, or the scenario the robot.
        ExportError: the composed graph deviates.
        TestudoError: an unknown robot or scenario.
    """
    components = _scenario(wrap)
    contract, spec = _contract(wrap, foreign_file, components), components.spec
    signals = {signal.name: signal for signal in contract.signals}
    check_parts(wrap, signals, spec)
    foreign = load_foreign_policy(foreign_file, wrap)
    _check_sizes(wrap, foreign, signals, spec)
    contract = replace(contract, hidden_size=foreign.hidden_size)
    model = compose_graph(wrap, foreign, contract, spec)
    loops = driven_inputs(components.environment, model, contract, loop_steps) if loop_steps else {}
    examples = {name: values[min(_EXAMPLE_DECISION, loop_steps - 1)] for name, values in loops.items()}
    if not loops:
        examples = random_inputs(contract, _EXAMPLE_ROWS, 1, np.random.default_rng(0))
    reference = reference_step(wrap, signals, spec, foreign.run)
    return write_proven(model, reference, contract, examples, path, loops=loops), components


def compose_graph(wrap: WrapFile, foreign: ForeignPolicy, contract: Contract, spec: RobotSpec) -> onnx.ModelProto:
    """Return the graph from the contract's inputs to its outputs: observation, foreign policy, command."""
    parts = GraphBuilder()
    signals = {signal.name: signal for signal in contract.signals}
    given = [add_observation(parts, wrap, signals), *([HIDDEN] if contract.hidden_size else [])]
    before = list(parts.nodes)
    action, *hidden_next = (PREFIX + name for name in foreign.outputs)
    results = [add_command(parts, wrap, spec, action), *hidden_next]
    inner = foreign.model.graph
    nodes = [
        *before,
        *_renamed(given, [PREFIX + name for name in foreign.inputs]),
        *inner.node,
        *parts.nodes[len(before) :],
        *_renamed(results, list(graph_outputs(contract))),
    ]
    graph = helper.make_graph(
        nodes,
        f"{contract.scenario}_{contract.robot}",
        _ports(graph_inputs(contract)),
        _ports(graph_outputs(contract)),
        [*parts.constants, *inner.initializer],
    )
    model = helper.make_model(graph, opset_imports=foreign.model.opset_import, ir_version=IR_VERSION)
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError as error:
        raise WrapError(f"{foreign.path}: the graph cannot be composed: {str(error).partition(chr(10))[0]}") from error
    return model


def driven_inputs(
    environment: Environment, model: onnx.ModelProto, contract: Contract, steps: int
) -> dict[str, np.ndarray]:
    """Return the graph's inputs (T, B, ...) along closed loops of ``steps`` decisions that it drives."""
    data = model.SerializeToString()
    session, names = open_session(data, read_header(data, "policy"), "policy"), list(graph_outputs(contract))
    worlds, size = _LOOP_WORLDS, environment.team.size
    world = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), worlds))
    advance, sense = jax.jit(environment.step), jax.jit(environment.signals)
    hidden = np.zeros((worlds * size, contract.hidden_size), np.float32)
    found: dict[str, list[np.ndarray]] = {signal.name: [] for signal in contract.signals}
    for step in range(steps):
        signals = {
            name: np.asarray(value, np.float32).reshape(-1, *value.shape[2:]) for name, value in sense(world).items()
        }
        feeds = {name: signals[name] for name in found} | ({HIDDEN: hidden} if contract.hidden_size else {})
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
        hidden = outputs.get(HIDDEN_NEXT, hidden)
        for name, values in found.items():
            values.append(signals[name])
        world, _ = advance(world, outputs[COMMAND].reshape(worlds, size, -1), jax.random.key(step))
    return {name: np.stack(values) for name, values in found.items()}


def _scenario(wrap: WrapFile) -> TrainingComponents:
    try:
        return build(TrainConfig(scenario=wrap.scenario, robot=wrap.robot, team_size=wrap.team_size, memory=0))
    except TestudoError as error:
        raise WrapError(f"{wrap.file}: {error}") from error


def _contract(wrap: WrapFile, foreign_file: Path, components: TrainingComponents) -> Contract:
    """Return the contract of the scenario with what is known of the foreign policy, without its parity."""
    made = make_contract(components, [])
    try:
        sha256 = hashlib.sha256(foreign_file.read_bytes()).hexdigest()
    except OSError as error:
        raise WrapError(f"{foreign_file}: cannot be read: {error.strerror}") from error
    provenance = {
        "wrapped": {"file": foreign_file.name, "sha256": sha256, "description": wrap.file.read_text(encoding="utf-8")},
        "task": made.provenance["task"],
        "world_sha256": made.provenance["world_sha256"],
        "versions": {name: version(name) for name in ("testudo", "onnx")},
    }
    return made.replace(provenance=provenance, hidden_size=0)


def _check_sizes(wrap: WrapFile, foreign: ForeignPolicy, signals: dict[str, Signal], spec: RobotSpec) -> None:
    for what, name, found, described in (
        ("input", foreign.inputs[0], foreign.observation_size, observation_size(wrap, signals)),
        ("output", foreign.outputs[0], foreign.action_size, action_size(wrap, spec)),
    ):
        if found != described:
            key = "observation" if what == "input" else f"action ({wrap.action.kind})"
            raise WrapError(
                f"{foreign.path}: {what} {name}: found {found} numbers, expected {described}: {wrap.file}: {key}"
            )
    given = wrap.normalisation
    if given is None:
        return
    if {len(given.mean), len(given.variance)} != {foreign.observation_size}:
        raise WrapError(
            f"{wrap.file}: normalisation: found {len(given.mean)} means and {len(given.variance)} variances, expected "
            f"{foreign.observation_size} each"
        )
    if not min(given.variance) + given.epsilon > 0:
        raise WrapError(f"{wrap.file}: normalisation.variance: expected numbers that are not below 0")


def _renamed(values: list[str], names: list[str]) -> list[onnx.NodeProto]:
    return [helper.make_node("Identity", [value], [name]) for value, name in zip(values, names, strict=True)]


def _ports(shapes: dict[str, tuple[int | str, ...]]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(
            name, onnx.TensorProto.FLOAT, [BATCH, *(SLOTS if isinstance(axis, str) else axis for axis in shape)]
        )
        for name, shape in shapes.items()
    ]
