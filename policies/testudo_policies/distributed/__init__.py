"""Training over several devices and processes.

In: worlds and devices.
Out: sharded arrays.
"""
