"""The calibration drive of one robot: commands that tell the parameters of its file, inside a free rectangle.

In: a robot file, a free area, measured poses.
Out: a plan of timed commands that stays inside the area for every robot of the file's intervals, and the next command.
"""
