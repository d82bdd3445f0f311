"""Recordings of others into the one run format: text and CSV logs, binary logs of the Crazyflie, bags."""
