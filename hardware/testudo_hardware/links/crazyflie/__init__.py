"""A Crazyflie over its radio with `cflib`, without Crazyswarm2.

`flight_sequencer` decides what is sent and is pure; `radio_link` connects it to `cflib` when a link is opened.
"""
