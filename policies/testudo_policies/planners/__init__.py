"""Planners and ORCA, which an evaluation puts beside learning.

In: a scenario in which every robot has a goal, and the starts of an episode.
Out: way-points for every robot, and the velocities that follow them under the shield.
"""
