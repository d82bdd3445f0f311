"""The fault matrix: faults injected over DDS into a fleet on the MuJoCo plant, and how soon it braked."""
