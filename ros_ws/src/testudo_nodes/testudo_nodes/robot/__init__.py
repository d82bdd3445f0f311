"""The nodes of one robot: policy, guard, driver.

In: poses, peer messages, requests of the operator.
Out: shielded commands.
"""
