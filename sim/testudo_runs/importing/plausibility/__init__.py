"""Units and axes of imported data, judged by the motion that they describe.

In: the series of a robot and its kind. Out: sentences on contradictions, and on how to correct the mapping.
"""
