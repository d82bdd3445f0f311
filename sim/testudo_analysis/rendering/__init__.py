"""Rendering of recorded and simulated runs.

In: trajectories of robots and boxes.
Out: pictures, films, an interactive window.
"""
