"""Writes a policy as one verified ONNX file that contains its contract.

jax2onnx converts the step function to a graph with free axes for batch and neighbours. Version 0.17
cannot convert: `nn.scan` (call the cell for one step), `jnp.max(where=, initial=)` (use `jnp.where`
and a plain maximum), sorting along the neighbours, `%` on arrays, and dense layers on inputs without
a batch axis.
"""

import logging
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax2onnx import to_onnx
from jax2onnx.plugins import flax as flax_converters
from jax2onnx.plugins import jax as jax_converters
from jax2onnx.plugins import plugin_system

from testudo_deploy.contract.contract import METADATA_KEY, NEIGHBOURS, Contract, TestVector
from testudo_deploy.contract.onnx_policy import open_session
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_header import read_header
from testudo_deploy.contract.rules import HIDDEN, graph_inputs, graph_outputs
from testudo_deploy.files.atomic_files import whole_file
from testudo_hardware.errors import TestudoError
from testudo_policies.exporting.graph_reduction import BATCH, SLOTS, simplify
from testudo_policies.exporting.parity import (
    Parity,
    Reference,
    Step,
    call_step,
    measure_parity,
    outputs_of,
    random_inputs,
)

OPSET = 21  # supported by onnxruntime 1.20, the oldest version that the robot side accepts
_VECTOR_ROWS = 4


class ExportError(TestudoError):
    """A policy cannot be converted, or the graph deviates from it."""


@dataclass(frozen=True)
class ExportReport:
    """Properties of a written artefact."""

    path: Path
    sha256: str
    contract: Contract  # the contract, with test vector and parity
    parity: Parity
    opset: int
    ir_version: int
    nodes: int
    size_bytes: int


def export_policy(
    step: Step,
    contract: Contract,
    example_signals: Mapping[str, np.ndarray],
    path: Path,
    *,
    loops: Mapping[str, np.ndarray] | None = None,
) -> ExportReport:
    """Write ``path`` after a graph check, a parity check and a load by the robot's loader.

    Args:
        step: the policy; its parameters should be NumPy arrays (`jax.device_get`), so that it runs on
            the device of the inputs. A policy without memory gets hidden (B, 0).
        contract: complete except parity and test vector, which this function adds.
        example_signals: realistic inputs, (B, ...) by contract name; their first rows become the test
            vector; `hidden` is optional.
        path: file to write; it is created only if all checks pass.
        loops: signals along closed loops, (T, B, ...) by name, for the parity over time.

    Raises:
        ExportError: the function cannot be converted, or the graph deviates from it.
        TestudoError: the contract is invalid.
    """
    path = Path(path)
    for what, given in (("example_signals", example_signals), ("loops", loops)):
        _check_names(what, given, contract)
    compiled, message_size = jax.jit(step), contract.command.message_size
    return write_proven(
        convert(step, contract),
        lambda inputs: call_step(compiled, inputs, message_size),
        contract,
        example_signals,
        path,
        loops=loops,
    )


def write_proven(
    model: onnx.ModelProto,
    reference: Reference,
    contract: Contract,
    example_signals: Mapping[str, np.ndarray],
    path: Path,
    *,
    loops: Mapping[str, np.ndarray] | None = None,
) -> ExportReport:
    """Write ``path`` if the graph equals the ``reference``, and the robot's loader takes it; see `export_policy`.

    Raises:
        ExportError: the graph deviates from the reference.
        TestudoError: the contract is invalid.
    """
    header = read_header(model.SerializeToString(), str(path))
    session = open_session(model.SerializeToString(), header, str(path))
    parity = measure_parity(reference, session, contract, loops=loops)
    if not parity.holds:
        raise ExportError(
            f"{path}: the graph deviates from the policy by {parity.max_error:.3g} (commands "
            f"{parity.command_error:.3g}, hidden {parity.hidden_error:.3g}, along loops "
            f"{parity.teacher_forced_error:.3g}), expected at most {parity.tolerance:g} (NaN: "
            "an output is not finite); the file was not written"
        )
    contract = contract.replace(parity=parity.to_dict(), test_vector=_test_vector(reference, contract, example_signals))
    onnx.helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    artefact = _write_verified(model, path)
    return ExportReport(
        path, artefact.sha256, contract, parity, header.opsets[""], header.ir_version,
        len(model.graph.node), path.stat().st_size,
    )  # fmt: skip


def convert(step: Step, contract: Contract) -> onnx.ModelProto:
    """Return the graph of a step function, without metadata; batch and neighbours are free axes.

    Raises:
        ExportError: jax2onnx cannot convert the function, or the graph is invalid.
    """
    shapes = graph_inputs(contract)

    def positional(*arrays: Any) -> Any:
        inputs = dict(zip(shapes, arrays, strict=True))
        hidden = inputs.pop(HIDDEN, None)
        if hidden is None:
            hidden = jnp.zeros((arrays[0].shape[0], 0), jnp.float32)
        command, hidden_next = step(inputs, hidden)
        memory = hidden_next if contract.hidden_size else None
        outputs = list(outputs_of(command, memory, contract.command.message_size).values())
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    _import_converters()
    try:
        # without jit, because jax2onnx 0.17 cannot convert the nested programs of JAX 0.12
        with jax.enable_x64(False), jax.disable_jit(), _quiet("onnx_ir"):
            model: onnx.ModelProto = to_onnx(
                positional,
                inputs=[
                    (BATCH, *(SLOTS if axis == NEIGHBOURS else axis for axis in shape)) for shape in shapes.values()
                ],
                model_name=f"{contract.scenario}_{contract.robot}",
                opset=OPSET,
                input_names=list(shapes),
                output_names=list(graph_outputs(contract)),
            )
        model = simplify(model)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ExportError(f"the policy cannot be converted to ONNX: {type(error).__name__}: {reason}") from error
    return model


@cache
def _import_converters() -> None:
    """Import the converters of JAX and flax, and no others.

    jax2onnx would also import those of equinox and all its examples, which build networks: 6 s instead of 1 s.
    """
    for package in (jax_converters, flax_converters):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    plugin_system._already_imported_plugins = True  # noqa: SLF001 -- jax2onnx offers no choice


def _check_names(what: str, given: Mapping[str, np.ndarray] | None, contract: Contract) -> None:
    expected = {signal.name for signal in contract.signals}
    if given is not None and set(given) - {HIDDEN} != expected:
        raise ExportError(f"{what}: found {', '.join(sorted(given))}, expected {', '.join(sorted(expected))}")


def _test_vector(reference: Reference, contract: Contract, example_signals: Mapping[str, np.ndarray]) -> TestVector:
    """Return the first rows of the examples and their outputs by the reference."""
    rows = {name: np.asarray(array[:_VECTOR_ROWS], np.float32) for name, array in example_signals.items()}
    if contract.hidden_size and HIDDEN not in rows:
        batch = len(next(iter(rows.values())))
        rng = np.random.default_rng(0)
        rows[HIDDEN] = random_inputs(contract, batch, 1, rng)[HIDDEN]
    inputs = {name: rows[name] for name in graph_inputs(contract)}
    return TestVector.from_arrays(inputs, reference(inputs))


def _write_verified(model: onnx.ModelProto, path: Path) -> PolicyArtefact:
    """Write a temporary file, load it like the robot does, and rename it to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))
        return PolicyArtefact.load(partial)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Hide the warnings of a logger: onnx_ir warns of values without a type, which ONNX allows."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
