"""Policies that ship: one folder for each scenario, which `make pretrained` fills.

In: nothing; a room of data.
Out: policy.onnx, fleet.yaml and card.json by scenario, read by `testudo_deploy.contract.shipped_policies`.
"""
