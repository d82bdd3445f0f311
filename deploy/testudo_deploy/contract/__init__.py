"""The contract and the policy file that carries it; messages between robots.

In: policy.onnx, envelopes.
Out: a checked `Contract` and a policy that decides.
"""
