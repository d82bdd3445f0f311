"""Tasks of teams on the fleet over ROS 2, beside the same policies in simulation.

In: options of `testudo bench tasks`.
Out: a `BenchResult` with one row for each scenario.
"""
