"""Policies of other libraries: a plain ONNX graph from observation to action gets a contract and becomes a policy file.

In: an ONNX file and a YAML file that says how its observation is composed and what its action means.
Out: a proven policy.onnx.
"""
