"""Builds the parts of the graph around a foreign policy: its observation from signals, and its command from actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from testudo_deploy.contract.contract import Signal
from testudo_hardware.spec import RobotSpec
from testudo_policies.wrapping.wrap_file import (
    POSITION,
    NeighbourParts,
    Normalisation,
    Part,
    WrapFile,
    is_turned,
)

_FAR = np.float32(3e38)  # square of the distance to a neighbour that is not there
_LEAST_SPEED = 1e-6  # [m/s]; avoids a division by zero


class GraphBuilder:
    """Nodes and constants of a graph, in order; every method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, kind: type[np.generic] = np.float32) -> str:
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def whole(self, *values: int) -> str:
        """Add a constant (n,) of whole numbers, such as axes."""
        return self.constant(values, np.int64)

    def column(self, value: str, begin: int, end: int) -> str:
        """Return columns of the last axis."""
        return self.op("Slice", value, self.whole(begin), self.whole(end), self.whole(-1))

    def turned(self, vector: str, cosine: str, sine: str, size: int) -> str:
        """Return a vector (..., D) turned by an angle about the vertical."""
        x, y = self.column(vector, 0, 1), self.column(vector, 1, 2)
        ahead = self.op("Sub", self.op("Mul", cosine, x), self.op("Mul", sine, y))
        across = self.op("Add", self.op("Mul", sine, x), self.op("Mul", cosine, y))
        rest = (self.column(vector, 2, 3),) if size == 3 else ()
        return self.op("Concat", ahead, across, *rest, axis=-1)

    def clipped(self, value: str, most: float) -> str:
        """Return a value within plus and minus a bound; the same for 0."""
        return self.op("Clip", value, self.constant(-most), self.constant(most)) if most else value


def add_observation(build: GraphBuilder, wrap: WrapFile, signals: Mapping[str, Signal]) -> str:
    """Add the observation (B, n) from the signals of the contract."""
    size = int(signals[POSITION].shape[0])
    columns = [
        _add_part(build, item, signals[item.signal], item.signal, POSITION, "yaw", size)
        if isinstance(item, Part)
        else _add_neighbours(build, item, signals, size)
        for item in wrap.observation
    ]
    found = build.op("Concat", *columns, axis=1)
    return found if wrap.normalisation is None else _add_normalisation(build, found, wrap.normalisation)


def add_command(build: GraphBuilder, wrap: WrapFile, spec: RobotSpec, action: str) -> str:
    """Add the velocity (B, D) [m/s] of the control point from an action (B, m)."""
    meaning, velocity = wrap.action, action
    if meaning.kind == "choices":
        best = build.op("ArgMax", action, axis=1, keepdims=0)
        velocity = build.op("Gather", build.constant(meaning.choices), best, axis=0)
    else:
        velocity = build.op("Mul", build.clipped(action, meaning.clip), build.constant(meaning.scale))
    if meaning.kind == "forward_turn":
        velocity = build.op("Mul", velocity, build.constant([1.0, spec.look_ahead_m]))
    if meaning.frame == "body" or meaning.kind == "forward_turn":
        velocity = build.turned(velocity, build.op("Cos", "yaw"), build.op("Sin", "yaw"), spec.dimension)
    square = build.op("ReduceSum", build.op("Mul", velocity, velocity), build.whole(1), keepdims=1)
    speed = build.op("Max", build.op("Sqrt", square), build.constant(_LEAST_SPEED))
    share = build.op("Div", build.constant(spec.control_point_speed_m_s), speed)
    return build.op("Mul", velocity, build.op("Min", share, build.constant(1.0)))


def _add_normalisation(build: GraphBuilder, value: str, given: Normalisation) -> str:
    deviation = np.sqrt(np.asarray(given.variance, np.float32) + np.float32(given.epsilon))
    shifted = build.op("Sub", value, build.constant(given.mean))
    return build.clipped(build.op("Div", shifted, build.constant(deviation)), given.clip)


def _add_part(build: GraphBuilder, part: Part, signal: Signal, value: str, own: str, yaw: str, size: int) -> str:
    """Add a part (..., n) of a signal (..., n) at own positions (..., D) and headings (..., 1)."""
    if part.relative:
        value = build.op("Sub", value, own)
    if is_turned(part, signal):
        value = build.turned(value, build.op("Cos", yaw), build.op("Neg", build.op("Sin", yaw)), size)
    if part.form == "cos_sin":
        value = build.op("Concat", build.op("Cos", value), build.op("Sin", value), axis=-1)
    if part.scale != 1:
        value = build.op("Mul", value, build.constant(part.scale))
    return build.clipped(value, part.clip)


def _add_neighbours(build: GraphBuilder, group: NeighbourParts, signals: Mapping[str, Signal], size: int) -> str:
    """Add the parts of the K nearest valid neighbours (B, K n); padded by K slots, as there may be fewer."""
    count, slots = group.nearest, build.whole(1)
    own, yaw = build.op("Unsqueeze", POSITION, slots), build.op("Unsqueeze", "yaw", slots)
    offset = build.op("Sub", "neighbour_position_world", own)
    square = build.op("ReduceSum", build.op("Mul", offset, offset), build.whole(2), keepdims=0)
    valid = build.op("Greater", "neighbour_valid", build.constant(0.5))
    key = build.op("Where", valid, square, build.constant(_FAR))
    key = build.op("Pad", key, build.whole(0, 0, 0, count), build.constant(_FAR))
    distance, order = f"nearest_{len(build.nodes)}", f"order_{len(build.nodes)}"
    build.nodes.append(helper.make_node("TopK", [key, build.whole(count)], [distance, order], axis=1, largest=0))
    order = build.op("Unsqueeze", order, build.whole(2))

    def picked(value: str) -> str:
        """Return (B, K, n) of values (B, N, n)."""
        padded = build.op("Pad", value, build.whole(0, 0, 0, 0, count, 0), build.constant(0.0))
        return build.op("GatherND", padded, order, batch_dims=1)

    def of_slots(name: str) -> str:
        return name if len(signals[name].shape) == 2 else build.op("Unsqueeze", name, build.whole(2))

    columns = [
        _add_part(build, part, signals[part.signal], picked(of_slots(part.signal)), own, yaw, size)
        for part in group.parts
    ]
    present = build.op("Greater", picked(of_slots("neighbour_valid")), build.constant(0.5))
    values = build.op("Where", present, build.op("Concat", *columns, axis=2), build.constant(group.fill))
    return build.op("Flatten", values, axis=1)
