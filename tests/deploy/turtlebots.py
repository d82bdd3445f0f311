"""A fleet file of two TurtleBots without a policy file, for what a file says of links and poses."""

import copy

import yaml

from testudo_deploy.fleet.fleet import load_fleet

TABLES = {
    "fileversion": 1,
    "policy": "policy.onnx",
    "policy_sha256": "0123456789abcdef" * 4,
    "robots": {
        "tb1": {"type": "turtlebot4", "initial_position": [-1.0, 1.0], "initial_yaw": 0.0, "goal": [1.0, 1.0]},
        "tb2": {"type": "turtlebot4", "initial_position": [-1.0, -1.0], "initial_yaw": 1.5, "goal": [1.0, -1.0]},
    },
}


def load_turtlebots(folder, **keys):
    """Write and load the fleet with further keys of its robots, by robot."""
    tables = copy.deepcopy(TABLES)
    for robot, own in keys.items():
        tables["robots"][robot] |= own
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(tables, sort_keys=False))
    return load_fleet(file)
