"""Export of trained parameters to a proven policy file.

In: trained parameters.
Out: policy.onnx with its contract, and a fleet file; or a script for the Robotarium testbed.
"""
