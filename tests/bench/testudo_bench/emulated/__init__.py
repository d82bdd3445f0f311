"""Fleets of emulated vendors' robots in lock-step: the deployed classes behind the link profiles, without ROS.

In: options of `testudo bench emulated`. Out: a `BenchResult` with one row for each vendor and pose source.
"""
