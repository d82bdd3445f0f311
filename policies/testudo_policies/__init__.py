"""Learning: networks, trainers, evaluation, export and improvement of policies.

In: a training configuration, or recorded runs.
Out: policy artefacts (policy.onnx), evaluations and datasets.
"""
