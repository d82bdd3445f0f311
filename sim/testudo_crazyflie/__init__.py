"""A simulated Crazyflie with the radio protocol (CRTP) of the real one, so that an unmodified `cflib` flies it.

`firmware.SimulatedCrazyflie` is pure: bytes and a clock in, bytes out. `server` puts it behind a UDP socket.
Layouts and behaviour follow the documentation and the behaviour of the firmware of August 2026, protocol version 12;
the code is our own.
"""
