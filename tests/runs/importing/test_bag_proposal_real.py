"""On a real run whose topics have names that tell nothing, motion alone finds whose body and whose command is whose."""

import numpy as np
import pytest
from tests.sim.real_data import utias_folder

from testudo_deploy.files.bag_writer import BagWriter, RecordedTopic
from testudo_runs.importing.bags import propose_map
from testudo_runs.recording.message_codec import NANO, MessageLayout, typestore
from testudo_runs.recording.recording import ROLES

ROWS = 9000
BODIES = {1: "alpha", 2: "beta", 3: "gamma", 4: "delta", 5: "epsilon"}
"""Names of the rigid bodies, by robot."""


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    """Return a bag of the first two minutes: poses by the name of a body, two commands for each robot, one false."""
    folder = utias_folder()
    columns = {}
    for k in BODIES:
        seen = np.loadtxt(folder / f"Robot{k}_Groundtruth.dat", max_rows=ROWS)
        told = np.loadtxt(folder / f"Robot{k}_Odometry.dat", max_rows=ROWS)
        pose, command = np.zeros((len(seen), 7)), np.zeros((len(told), 6))
        pose[:, :2], pose[:, 5], pose[:, 6] = seen[:, 1:3], np.sin(seen[:, 3] / 2), np.cos(seen[:, 3] / 2)
        command[:, 0], command[:, 5] = told[:, 1], told[:, 2]
        columns[k] = (seen[:, 0], pose), (told[:, 0], command)
    parts = []
    for k, body in BODIES.items():
        parts.append((f"/vicon/{body}/pose", "pose", *columns[k][0]))
        parts.append((f"/r{k}/cmd_vel", "command", *columns[k][1]))
        times_s, told = columns[k][1]
        parts.append((f"/r{k}/cmd_vel_nav", "command", times_s, told[::-1]))  # not what moved it
    rows = []
    for topic, role, times_s, values in parts:
        stamps = np.rint(times_s * NANO).astype(np.int64)
        data = MessageLayout(ROLES[role], "world").encode(stamps, values)
        rows += zip(stamps.tolist(), [topic] * len(data), data, strict=True)
    path = tmp_path_factory.mktemp("real") / "lab"
    path.mkdir()
    topics = [
        RecordedTopic(
            topic,
            ROLES[role].type,
            typestore().generate_msgdef(ROLES[role].type)[0],
            "",
            reliable=True,
            transient_local=False,
            depth=10,
        )
        for topic, role, *_ in parts
    ]
    writer = BagWriter(path, topics, min(row[0] for row in rows), "test")
    writer.open()
    for stamp, topic, data in sorted(rows):
        writer.write(topic, data, stamp)
    writer.close()
    return path


def test_motion_tells_bodies_and_commands_of_five_real_robots(bag):
    proposal = propose_map(bag)
    found = {(entry["robot"], entry["role"]): entry["topic"] for entry in proposal.mapping.topics}
    assert found == {
        (f"r{k}", role): topic
        for k, body in BODIES.items()
        for role, topic in (("pose", f"/vicon/{body}/pose"), ("command", f"/r{k}/cmd_vel"))
    }
    assert not proposal.ambiguous
