"""The demo: train, evaluate, export, drive, replay, report.

In: a training configuration.
Out: a demo folder.
"""
