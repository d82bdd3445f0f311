"""The policy file on the robot: load it, refuse mismatches, run one decision.

A `PolicyArtefact` has passed all checks: hash, versions, contract, robot, graph and test vector.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from testudo_deploy.contract.contract import METADATA_KEY, Contract
from testudo_deploy.contract.onnx_policy import (
    RUNTIME,
    PolicyStepRunner,
    Session,
    check_graph,
    open_session,
)
from testudo_deploy.contract.policy_archive import is_archived, policy_bytes
from testudo_deploy.contract.policy_header import ArtefactError, OnnxHeader, read_header
from testudo_deploy.contract.rules import HIDDEN, TASK_SIGNALS, check_robot, graph_inputs, graph_outputs, read_contract
from testudo_hardware.spec import RobotSpec

REPLAY_TOLERANCE = 1e-5
_WARM_UP_STEPS = 3


@dataclass(frozen=True)
class PolicyArtefact:
    """A valid policy file. `step` uses its own buffers: one thread at a time."""

    path: Path
    sha256: str  # of the file's bytes
    header: OnnxHeader
    contract: Contract
    replay_error: float  # largest deviation from the test vector, measured at load
    _runner: PolicyStepRunner

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        robot: RobotSpec | None = None,
        sha256: str | None = None,
        task_signals: Collection[str] | None = TASK_SIGNALS,
    ) -> Self:
        """Read and check a policy file.

        Args:
            path: the ONNX file, or one in an archive, see `policy_archive`.
            robot: the robot that will run it; None skips that check (to inspect a file).
            sha256: the required hash; None accepts any.
            task_signals: names of the signals of the task that are available besides those of the robot; None: the
                task node of the station sends any.

        Raises:
            ArtefactError: unreadable, altered, for a newer runtime, or failing its test vector.
            PolicyContractError: no valid contract, or one for another robot.
        """
        path = Path(path)
        data = _read(path)
        found = hashlib.sha256(data).hexdigest()
        if sha256 is not None and sha256.lower() != found:
            raise ArtefactError(
                f"{path}: sha256: found {found}, expected {sha256}; use the exported file, "
                "or correct policy_sha256 in the fleet file"
            )
        header = read_header(data, str(path))
        if METADATA_KEY not in header.metadata:
            raise ArtefactError(
                f"{path}: metadata key {METADATA_KEY!r}: missing; this ONNX file has no contract, "
                "make one with `testudo export`"
            )
        contract = read_contract(header.metadata[METADATA_KEY], f"{path}: contract")
        if is_archived(path) and path.stem != contract.scenario:
            raise ArtefactError(f"{path}: found a policy for {contract.scenario}, expected one for {path.stem}")
        if robot is not None:
            check_robot(contract, robot, f"{path}: contract", task_signals)
        session = open_session(data, header, str(path))
        check_graph(session, contract, str(path))
        error = _replay(session, contract, str(path))
        runner = PolicyStepRunner(session, graph_inputs(contract), graph_outputs(contract), str(path))
        artefact = cls(path, found, header, contract, error, runner)
        artefact._warm_up()
        return artefact

    def initial_hidden(self) -> np.ndarray:
        """Return the initial hidden state (H,): zeros."""
        return np.zeros(self.contract.hidden_size, np.float32)

    def step(self, signals: Mapping[str, np.ndarray], hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Run the policy once.

        Args:
            signals: by contract name, with the shapes of the contract (no batch axis) and any number of neighbours;
                other names are ignored.
            hidden: (H,) of the previous step, or `initial_hidden()`.

        Returns:
            The control-point velocity in the world (D,) [m/s], or what the command type of the contract says, with the
            numbers of any message to the peers after it; and the next hidden state (H,).

        Raises:
            ArtefactError: a signal is missing, of another shape or not finite, or the output is not finite.
        """
        return self._runner.run(signals, hidden)

    def _warm_up(self) -> None:
        # the test vector's first row; zeros may be outside the policy's domain
        inputs = {name: np.asarray(values[0], np.float32) for name, values in self.contract.test_vector.inputs.items()}
        hidden = inputs.pop(HIDDEN, self.initial_hidden())
        for _ in range(_WARM_UP_STEPS):
            self.step(inputs, hidden)


def _read(path: Path) -> bytes:
    data = policy_bytes(path)
    if not data:
        raise ArtefactError(f"{path}: is empty (0 bytes); copy or export it again")
    return data


def _replay(session: Session, contract: Contract, where: str) -> float:
    """Return the largest deviation from the test vector; refuse more than the tolerance."""
    vector = contract.test_vector
    inputs = {name: np.asarray(values, np.float32) for name, values in vector.inputs.items()}
    worst = 0.0
    try:
        results: list[np.ndarray] = session.run(list(vector.outputs), inputs)
    except Exception as error:
        raise ArtefactError(f"{where}: the test vector cannot be run: {error}") from error
    for (name, values), result in zip(vector.outputs.items(), results, strict=True):
        expected = np.asarray(values, np.float32)
        if result.shape != expected.shape:
            raise ArtefactError(
                f"{where}: test vector: output {name}: found shape {result.shape}, "
                f"expected {expected.shape}; export the policy again"
            )
        deviation = float(np.max(np.abs(result - expected), initial=0.0))
        if not deviation <= REPLAY_TOLERANCE:  # also true for NaN
            raise ArtefactError(
                f"{where}: test vector: output {name} deviates by {deviation:.3g}, expected at "
                f"most {REPLAY_TOLERANCE:g}: the file was altered, or this runtime ({RUNTIME}) "
                f"computes differently; export the policy again"
            )
        worst = max(worst, deviation)
    return worst
