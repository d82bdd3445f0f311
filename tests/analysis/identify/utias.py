"""The ground robots' run as a recording, straight from its text files."""

import numpy as np

from testudo_runs.recording.recording import Recording, RobotRecording, Series


def utias_recording(folder, robots=range(1, 6), seconds=None):
    """Return the run, or its first so many seconds."""
    found, start = {}, None
    for k in robots:
        driven, seen = (np.loadtxt(folder / f"Robot{k}_{name}.dat") for name in ("Odometry", "Groundtruth"))
        start = driven[0, 0] if start is None else start
        if seconds is not None:
            driven, seen = (rows[rows[:, 0] < start + seconds] for rows in (driven, seen))
        zero = np.zeros(len(seen))
        pose = np.stack(
            [seen[:, 1], seen[:, 2], zero, zero, zero, np.sin(seen[:, 3] / 2), np.cos(seen[:, 3] / 2)], axis=1
        )
        command = np.zeros((len(driven), 6))
        command[:, 0], command[:, 5] = driven[:, 1], driven[:, 2]
        found[f"robot{k}"] = RobotRecording(
            f"robot{k}",
            "irobot_create",
            {"pose": Series(seen[:, 0] - start, pose), "command": Series(driven[:, 0] - start, command)},
        )
    return Recording(found, int(start * 1e9))
