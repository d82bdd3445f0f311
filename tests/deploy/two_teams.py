"""A fleet of two kinds: robots on the ground, and drones that follow them."""

import yaml
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import parse_fleet
from testudo_hardware.spec import load_robot

GROUND, DRONE = "gritsbot_x", "crazyflie_2x"


def lifted(floor_m):
    """Return an edit of a drone's contract that puts its floor at a height [m]."""

    def edit(values):
        low, high = values["arena"]["low_world"], values["arena"]["high_world"]
        values["arena"] |= {"low_world": [*low[:2], floor_m], "high_world": [*high[:2], 2.0]}

    return edit


def tables(folder, floor_m=0.4):
    """Write two policy files into the folder and return the tables of a fleet of two robots of each kind."""
    make_tiny_policy(folder / "ground.onnx", load_robot(GROUND))
    make_tiny_policy(folder / "air.onnx", load_robot(DRONE), edit=lifted(floor_m))
    robots = {}
    for k in range(2):
        robots[f"g{k}"] = {
            "type": GROUND,
            "initial_position": [0.0, 0.6 * k],
            "initial_yaw": 0.0,
            "goal": [0.5, 0.6 * k],
        }
        robots[f"d{k}"] = {
            "type": DRONE,
            "initial_position": [0.0, 0.6 * k, 1.0],
            "initial_yaw": 0.0,
            "follow": {"robot": f"g{k}", "offset": [0.0, 0.0, 1.0]},
        }
    return {
        "fileversion": 1,
        "policy": "ground.onnx",
        "policy_sha256": PolicyArtefact.load(folder / "ground.onnx").sha256,
        "policies": {DRONE: {"policy": "air.onnx", "policy_sha256": PolicyArtefact.load(folder / "air.onnx").sha256}},
        "robots": robots,
    }


def fleet_of(folder, values):
    return parse_fleet(yaml.safe_dump(values, sort_keys=False), folder / "fleet.yaml")
