"""The nodes of one robot: policy, guard, driver.

In: poses, peer messages, stops.
Out: shielded commands.
"""
