"""Runs simulated vehicles until Ctrl-C: `python -m testudo_crazyflie --vehicles 2`."""

import argparse
import contextlib
import sys
import time

from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import FIRST_PORT, CrazyflieServer


def main() -> None:
    """Read the arguments, start the vehicles and print their addresses."""
    parser = argparse.ArgumentParser(prog="python -m testudo_crazyflie", description=__doc__)
    parser.add_argument("--vehicles", type=int, default=1, help="number of vehicles, one port each")
    parser.add_argument("--port", type=int, default=FIRST_PORT, help="port of the first; cflib scans 19850 to 19859")
    parser.add_argument("--apart", type=float, default=0.5, help="distance on the ground along x [m]")
    parser.add_argument("--arming", action="store_true", help="wait for arming, as brushless vehicles do")
    words = parser.parse_args()
    with contextlib.ExitStack() as stack:
        for k in range(words.vehicles):
            settings = SimulatedCrazyflieSettings.create(
                position_world=(k * words.apart, 0.0, 0.0), auto_arm=not words.arming
            )
            server = stack.enter_context(CrazyflieServer(settings, port=words.port + k, seed=k))
            sys.stdout.write(f"{server.uri}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1.0)


if __name__ == "__main__":
    main()
