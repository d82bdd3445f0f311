"""Markers of a fleet for RViz and Foxglove, as plain values.

In: arena, goals, and the newest messages of robots.
Out: `Marker` values, written into `visualization_msgs/Marker` by `fill_marker`.
"""
