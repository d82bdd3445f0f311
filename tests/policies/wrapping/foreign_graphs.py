"""ONNX policies in the form of other libraries' exporters, made without them: names, shapes, opset, further outputs.

rsl_rl (`OnPolicyRunner.export_policy_to_onnx`, isaaclab's `export_policy_as_onnx`): input `obs`, output `actions`, both
with the batch 1; ELU. Stable-Baselines3 (`OnnxableSB3Policy` of its page on exporting): input `input`, outputs of the
tracer's names, of which the second and third are value and log-probability. JaxMARL (its ActorCritic by jax2onnx):
`in_0` with a free batch; logits of the discrete actions of its particle worlds.
"""

from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN_UNITS = 16


def layers(sizes, activation, seed, name="mlp"):
    """Return nodes and weights of a network from the value `0` of a name to `end`."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], [], f"{name}.0"
    for index, (size, following) in enumerate(pairwise(sizes)):
        matrix = rng.normal(0, 1 / np.sqrt(size), (following, size)).astype(np.float32)
        offset = rng.normal(0, 0.1, following).astype(np.float32)
        weights += [numpy_helper.from_array(matrix, f"{name}.{index}.weight")]
        weights += [numpy_helper.from_array(offset, f"{name}.{index}.bias")]
        last = index == len(sizes) - 2
        linear = f"{name}.end" if last else f"{name}.{index}.linear"
        names = [value, f"{name}.{index}.weight", f"{name}.{index}.bias"]
        nodes.append(helper.make_node("Gemm", names, [linear], transB=1))
        if not last:
            value = f"{name}.{index + 1}"
            nodes.append(helper.make_node(activation, [linear], [value]))
    return nodes, weights


def graph(nodes, weights, inputs, outputs, opset=17, ir_version=8):
    """Return a model; inputs and outputs are shapes by name."""
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    made = helper.make_graph(nodes, "main_graph", *ports, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def rsl_rl(path, observation, action, *, opset=18):
    """Write an actor as rsl_rl does."""
    nodes, weights = layers((observation, HIDDEN_UNITS, HIDDEN_UNITS, action), "Elu", 1)
    ends = [helper.make_node("Identity", ["obs"], ["mlp.0"]), helper.make_node("Identity", ["mlp.end"], ["actions"])]
    model = graph([ends[0], *nodes, ends[1]], weights, {"obs": [1, observation]}, {"actions": [1, action]}, opset)
    onnx.save(model, path)


def stable_baselines3(path, observation, action):
    """Write a PPO policy as the page of Stable-Baselines3 shows: action, value and log-probability."""
    nodes, weights = layers((observation, HIDDEN_UNITS, action), "Tanh", 2)
    critic, critic_weights = layers((observation, HIDDEN_UNITS, 1), "Tanh", 3, "value")
    more = [
        helper.make_node("Identity", ["input"], ["mlp.0"]),
        helper.make_node("Identity", ["input"], ["value.0"]),
        helper.make_node("Identity", ["mlp.end"], ["26"]),
        helper.make_node("Identity", ["value.end"], ["27"]),
        helper.make_node("ReduceSum", ["26", "last"], ["28"], keepdims=0),
    ]
    weights += [*critic_weights, numpy_helper.from_array(np.array([1]), "last")]
    outputs = {"26": [1, action], "27": [1, 1], "28": [1]}
    onnx.save(graph([*more[:2], *nodes, *critic, *more[2:]], weights, {"input": [1, observation]}, outputs), path)


def jaxmarl(path, observation, actions):
    """Write the actor of JaxMARL's IPPO for discrete actions: logits."""
    nodes, weights = layers((observation, HIDDEN_UNITS, actions), "Relu", 4)
    ends = [helper.make_node("Identity", ["in_0"], ["mlp.0"]), helper.make_node("Identity", ["mlp.end"], ["out_0"])]
    ports = {"in_0": ["B", observation]}, {"out_0": ["B", actions]}
    onnx.save(graph([ends[0], *nodes, ends[1]], weights, *ports, opset=21, ir_version=10), path)


def recurrent(path, observation, action, hidden):
    """Write a policy with a hidden state (B, H)."""
    nodes, weights = layers((observation + hidden, HIDDEN_UNITS, action + hidden), "Tanh", 5)
    more = [
        helper.make_node("Concat", ["obs", "h_in"], ["mlp.0"], axis=1),
        helper.make_node("Split", ["mlp.end", "sizes"], ["actions", "raw"], axis=1),
        helper.make_node("Tanh", ["raw"], ["h_out"]),
    ]
    weights.append(numpy_helper.from_array(np.array([action, hidden]), "sizes"))
    inputs = {"obs": [1, observation], "h_in": [1, hidden]}
    outputs = {"actions": [1, action], "h_out": [1, hidden]}
    onnx.save(graph([more[0], *nodes, *more[1:]], weights, inputs, outputs), path)
