"""The foreign policy as its own library would run it, in NumPy: the oracle that the composed graph is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT
from testudo_hardware.spec import RobotSpec
from testudo_policies.wrapping.wrap_file import POSITION, NeighbourParts, Part, WrapFile, is_turned, part_size

Arrays = Mapping[str, np.ndarray]
Foreign = Callable[[np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray | None]]
"""``foreign(observation (B, n), hidden (B, H) or None) -> (action (B, m), next hidden or None)``."""


def reference_step(
    wrap: WrapFile, signals: Mapping[str, Signal], spec: RobotSpec, foreign: Foreign
) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """Return the policy as a function from inputs of the contract (B, ...) by name to outputs by name, float32."""

    def step(inputs: Arrays) -> dict[str, np.ndarray]:
        observed = observation(wrap, signals, inputs)
        action, hidden_next = foreign(observed, inputs.get(HIDDEN))
        outputs = {COMMAND: velocity_world(wrap, spec, action, inputs["yaw"])}
        return outputs if hidden_next is None else outputs | {HIDDEN_NEXT: hidden_next}

    return step


def observation(wrap: WrapFile, signals: Mapping[str, Signal], inputs: Arrays) -> np.ndarray:
    """Return the observation (B, n) from inputs of the contract (B, ...) by name."""
    columns = [
        _values(item, signals[item.signal], inputs[item.signal], inputs[POSITION], inputs["yaw"])
        if isinstance(item, Part)
        else _nearest(item, signals, inputs)
        for item in wrap.observation
    ]
    found = np.concatenate(columns, axis=1)
    given = wrap.normalisation
    if given is not None:
        deviation = np.sqrt(np.asarray(given.variance, np.float32) + np.float32(given.epsilon))
        found = (found - np.asarray(given.mean, np.float32)) / deviation
        found = np.clip(found, -given.clip, given.clip) if given.clip else found
    return found.astype(np.float32)


def velocity_world(wrap: WrapFile, spec: RobotSpec, action: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Return the velocity (B, D) [m/s] of the control point for actions (B, m) at headings (B, 1) [rad]."""
    meaning = wrap.action
    if meaning.kind == "choices":
        velocity = np.asarray(meaning.choices, np.float32)[np.argmax(action, axis=1)]
    else:
        limited = np.clip(action, -meaning.clip, meaning.clip) if meaning.clip else action
        velocity = limited * np.asarray(meaning.scale, np.float32)
    if meaning.kind == "forward_turn":
        velocity = velocity * np.asarray([1.0, spec.look_ahead_m], np.float32)
    if meaning.frame == "body" or meaning.kind == "forward_turn":
        velocity = _turned(velocity, np.cos(yaw), np.sin(yaw))
    speed = np.maximum(np.sqrt(np.sum(velocity**2, axis=1, keepdims=True)), 1e-6)
    found: np.ndarray = velocity * np.minimum(spec.control_point_speed_m_s / speed, 1.0)
    return found.astype(np.float32)


def _nearest(group: NeighbourParts, signals: Mapping[str, Signal], inputs: Arrays) -> np.ndarray:
    """Return (B, K, n) of the K nearest valid neighbours as (B, K n)."""
    own, yaw, places = inputs[POSITION][:, None], inputs["yaw"][:, None], inputs["neighbour_position_world"]
    valid = inputs["neighbour_valid"] > 0.5
    square = np.where(valid, np.sum((places - own) ** 2, axis=2), np.float32(np.inf))
    order = np.argsort(square, axis=1, kind="stable")[:, : group.nearest]
    rows = np.arange(len(order))[:, None]
    columns = [
        _values(part, signals[part.signal], _slots(inputs[part.signal])[rows, order], own, yaw) for part in group.parts
    ]
    found = np.concatenate(columns, axis=2)
    found = np.where(valid[rows, order][..., None], found, np.float32(group.fill))
    size = sum(part_size(part, signals) for part in group.parts)
    padded: np.ndarray = np.full((len(order), group.nearest, size), group.fill, np.float32)
    padded[:, : order.shape[1]] = found
    return padded.reshape(len(order), -1)


def _slots(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 3 else values[..., None]


def _values(part: Part, signal: Signal, values: np.ndarray, own: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Return a part (..., n) of a signal (..., n) at own positions (..., D) and headings (..., 1)."""
    if part.relative:
        values = values - own
    if is_turned(part, signal):
        values = _turned(values, np.cos(yaw), -np.sin(yaw))
    if part.form == "cos_sin":
        values = np.concatenate([np.cos(values), np.sin(values)], axis=-1)
    values = values * np.float32(part.scale)
    return np.clip(values, -part.clip, part.clip) if part.clip else values


def _turned(vector: np.ndarray, cosine: Any, sine: Any) -> np.ndarray:
    x, y = vector[..., :1], vector[..., 1:2]
    return np.concatenate([cosine * x - sine * y, sine * x + cosine * y, vector[..., 2:]], axis=-1)
