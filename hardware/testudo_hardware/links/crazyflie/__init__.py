"""A Crazyflie over its radio by `cflib`, for labs without Crazyswarm2.

`pilot` decides what is sent and is pure; `radio` connects it to `cflib`, which is only imported when a link is opened.
"""
