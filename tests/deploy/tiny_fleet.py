"""A fleet on disk with a tiny policy: robots in lanes, all driving in the direction of x."""

from pathlib import Path

from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet, save_fleet
from testudo_hardware.spec import load_robot


def make_tiny_fleet(
    folder, count=2, robot="gritsbot_x", *, start_x=-0.6, goal_x=0.6, lane_m=0.5, walls=True, edit_model=None
):
    """Write policy.onnx and fleet.yaml into the folder and return the fleet."""
    folder = Path(folder)
    spec = load_robot(robot)
    policy = folder / "policy.onnx"
    edit = None if walls else lambda values: values.update(arena=None)
    make_tiny_policy(policy, spec, edit=edit, edit_model=edit_model)
    robots = tuple(
        FleetRobot(
            name=f"r{k}",
            type=robot,
            initial_position_world=(start_x, lane_m * k, 1.0)[: spec.dimension],
            initial_yaw=0.0,
            goal_world=(goal_x, lane_m * k, 1.0)[: spec.dimension],
            spec=spec,
        )
        for k in range(count)
    )
    file = folder / "fleet.yaml"
    save_fleet(Fleet(file, policy, PolicyArtefact.load(policy).sha256, robots), file)
    return load_fleet(file)
