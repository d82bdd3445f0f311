"""Imports recordings of other software as runs.

In: text and CSV logs, binary logs of the Crazyflie and of PX4, bags; a mapping.
Out: a run folder with an import report.
"""
