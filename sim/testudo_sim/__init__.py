"""Simulation of teams in many worlds on CPU and GPU.

In: robot files, scenarios, nominal velocities.
Out: states, signals, rewards and contacts.
"""
