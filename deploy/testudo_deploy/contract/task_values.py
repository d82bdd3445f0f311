"""The numbers of a task message or of a tick record as arrays, by the signals of a contract."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.contract.messages import EnvelopeError, TaskMessage, Vector


def task_arrays(signals: Sequence[Signal], values: Mapping[str, Vector], slots: int) -> dict[str, np.ndarray]:
    """Return the signals of the task, component first: (C,), (C, K), and (C, slots) of neighbours.

    Raises:
        EnvelopeError: a signal is missing, unknown or of another size, or a number is not finite.
    """
    names = [signal.name for signal in signals]
    if set(values) != set(names):
        wrong = sorted(set(values) ^ set(names))
        raise EnvelopeError(f"task: found {'unknown' if wrong[0] in values else 'no'} signal {wrong[0]}")
    arrays: dict[str, np.ndarray] = {}
    for signal in signals:
        shape = tuple(slots if axis == NEIGHBOURS else int(axis) for axis in signal.shape)
        numbers = np.array(values[signal.name], float)
        if numbers.shape != (prod(shape),) or not np.isfinite(numbers).all():
            raise EnvelopeError(
                f"task: {signal.name}: found {numbers.size} numbers, expected {prod(shape)} finite numbers"
            )
        arrays[signal.name] = numbers.reshape(shape).T
    return arrays


def arrays_for(signals: Sequence[Signal], message: TaskMessage, peers: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the signals of a message as `task_arrays` does, with the neighbours in the order of ``peers``.

    Raises:
        EnvelopeError: it does not have the signals, or is for other peers.
    """
    arrays = task_arrays(signals, message.values, len(message.peers))
    if len(message.peers) != len(peers) or set(message.peers) != set(peers):
        raise EnvelopeError(f"task: found the peers {', '.join(message.peers)}, expected {', '.join(peers)}")
    order = [message.peers.index(peer) for peer in peers]
    return {
        signal.name: arrays[signal.name][..., order] if NEIGHBOURS in signal.shape else arrays[signal.name]
        for signal in signals
    }


def numbers_for(signals: Sequence[Signal], message: TaskMessage, peers: Sequence[str]) -> dict[str, Vector]:
    """Return the signals of a message as `packed` returns those of `arrays_for`; raises as that function."""
    values, slots = message.values, len(peers)
    sizes = {one.name: prod(slots if axis == NEIGHBOURS else int(axis) for axis in one.shape) for one in signals}
    same = message.peers == tuple(peers) and len(set(peers)) == slots
    if same and {name: len(numbers) for name, numbers in values.items()} == sizes:  # finite, as in every message
        return {name: values[name] for name in sizes}
    return {name: packed(array) for name, array in arrays_for(signals, message, peers).items()}


def packed(array: np.ndarray) -> Vector:
    """Return an array, component first, as the numbers of a message."""
    return tuple(np.asarray(array, float).T.ravel().tolist())
