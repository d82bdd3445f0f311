"""Removes nodes of an exported graph that only compute shapes: half the nodes, a third of the run time.

jax2onnx computes the shape of every broadcast at run time, because batch and neighbours are free axes.
Where the inferred shapes show that nothing is broadcast, these nodes are removed.
"""

from collections import Counter

import numpy as np
import onnx
from onnx import helper, numpy_helper

BATCH, SLOTS = "B", "N"  # names of the free axes: batch and neighbour slots
Shape = tuple[int | str, ...]


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an equivalent model with fewer nodes and the same inputs and outputs."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = _Graph(result)
    graph.drop_empty_parts()
    graph.drop_redundant_expands()
    graph.unflatten_dense_layers()
    graph.turn_reshapes_into_unsqueezes()
    graph.write_back()
    return result


class _Graph:
    """The nodes of a model with the inferred shape of every value; modified in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._nodes = list(model.graph.node)
        self._outputs = {value.name for value in model.graph.output}
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self._shapes = {
            value.name: _shape(value)
            for values in (inferred.value_info, inferred.input, inferred.output)
            for value in values
        }
        for tensor in model.graph.initializer:
            self._shapes[tensor.name] = tuple(tensor.dims)

    def drop_empty_parts(self) -> None:
        """Remove the inputs of length zero from every Concat."""
        for node in self._of("Concat"):
            axis = helper.get_node_attr_value(node, "axis")
            shapes = [self._known(name) for name in node.input]
            kept = [name for name, shape in zip(node.input, shapes, strict=True) if shape is None or shape[axis] != 0]
            if kept and len(kept) < len(node.input):
                node.input[:] = kept

    def drop_redundant_expands(self) -> None:
        """Remove every Expand that does not change the shape."""
        for node in self._of("Expand"):
            shape = self._known(node.input[0])
            if shape is not None and shape == self._known(node.output[0]):
                self._bypass(node)

    def unflatten_dense_layers(self) -> None:
        """Replace the sequence Reshape, Gemm, Reshape by MatMul and Add, which accept any rank."""
        makers = {name: node for node in self._nodes for name in node.output}
        users = Counter(name for node in self._nodes for name in node.input)
        for last in self._of("Reshape"):
            gemm = makers.get(last.input[0])
            if gemm is None or not _is_plain(gemm) or users[gemm.output[0]] != 1:
                continue
            first = makers.get(gemm.input[0])
            if first is None or first.op_type != "Reshape":
                continue
            before, after = self._known(first.input[0]), self._known(last.output[0])
            if before is None or after is None:
                continue
            weights, bias = (self._shapes.get(name) or () for name in gemm.input[1:3])
            if len(bias) != 1 or before[-1:] != weights[:1] or before[:-1] != after[:-1]:
                continue
            product = f"{last.output[0]}_product"
            rows = helper.make_node("MatMul", [first.input[0], gemm.input[1]], [product])
            shifted = helper.make_node("Add", [product, gemm.input[2]], [last.output[0]])
            self._replace(last, rows, shifted)

    def turn_reshapes_into_unsqueezes(self) -> None:
        """Replace every Reshape that only adds axes of length one by an Unsqueeze with constant axes."""
        for node in self._of("Reshape"):
            before, after = self._known(node.input[0]), self._known(node.output[0])
            if before is None or after is None:
                continue
            axes = _added_axes(before, after)
            if before == after:
                self._bypass(node)
            elif axes:
                name = f"{node.output[0]}_axes"
                self._graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), name))
                new = helper.make_node("Unsqueeze", [node.input[0], name], list(node.output))
                self._replace(node, new)

    def write_back(self) -> None:
        """Write the nodes and constants that the outputs depend on into the model."""
        needed = set(self._outputs)
        kept = []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
                needed.update(node.input)
        constants = [item for item in self._graph.initializer if item.name in needed]
        for field, items in (("node", kept[::-1]), ("initializer", constants), ("value_info", [])):
            self._graph.ClearField(field)
            getattr(self._graph, field).extend(items)

    def _of(self, kind: str) -> list[onnx.NodeProto]:
        return [node for node in self._nodes if node.op_type == kind]

    def _known(self, name: str) -> Shape | None:
        """Return the shape of a value if every axis is known, by length or by name."""
        shape = self._shapes.get(name)
        known = shape is not None and all(isinstance(axis, int) or axis in (BATCH, SLOTS) for axis in shape)
        return shape if known else None

    def _bypass(self, node: onnx.NodeProto) -> None:
        if node.output[0] in self._outputs:
            return
        for user in self._nodes:
            for index, name in enumerate(user.input):
                if name == node.output[0]:
                    user.input[index] = node.input[0]

    def _replace(self, old: onnx.NodeProto, *new: onnx.NodeProto) -> None:
        index = next(index for index, node in enumerate(self._nodes) if node is old)
        self._nodes[index : index + 1] = new


def _is_plain(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Gemm that computes x @ w + b."""
    set_to = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    return node.op_type == "Gemm" and len(node.input) == 3 and all(set_to[name] == plain.get(name) for name in set_to)


def _shape(value: onnx.ValueInfoProto) -> Shape | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    # an axis of unknown length has neither field
    return tuple(axis.dim_value if axis.HasField("dim_value") else axis.dim_param or "?" for axis in tensor.shape.dim)


def _added_axes(before: Shape, after: Shape) -> list[int]:
    """Return the axes of length one by which ``after`` differs from ``before``; empty for another difference."""
    axes, rest = [], list(before)
    for index, axis in enumerate(after):
        if rest and rest[0] == axis:
            rest.pop(0)
        elif axis == 1:
            axes.append(index)
        else:
            return []
    return axes if not rest else []
