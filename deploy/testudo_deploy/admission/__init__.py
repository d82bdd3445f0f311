"""Fleet admission: whether the robots of a fleet may drive together.

In: a fleet file and its policy files.
Out: safety contracts, or a refusal with its reason.
"""
