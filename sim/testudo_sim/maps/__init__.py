"""Maps of obstacles: generators by name, shortest ways among them, ranges to them.

In: the name of a map, a seed, and the size of a robot's way. Out: obstacles of an arena, ways and ranges.
"""
