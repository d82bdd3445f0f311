"""Scripted attacks on a keyed fleet in lock-step: the deployed classes, an intruder on every topic, a hunter.

In: options of `testudo bench redteam`.
Out: a `BenchResult` with one row for each attack, and its control with the defence off.
"""
