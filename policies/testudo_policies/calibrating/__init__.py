"""Calibration of one robot: the drive as a fleet of one, its identification, and what stays unknown.

In: a fleet file, a robot in it, a free area.
Out: a recorded run, an identified robot file, a verdict for each parameter.
"""
