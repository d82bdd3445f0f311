"""A vendor's robots at the starts and goals of `navigation`, or side by side in the air."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from testudo_bench.emulated.straight_policy import write_straight_policy
from testudo_bench.emulated.vendor_cases import VendorCase, write_link, write_robot
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy
from testudo_sim.scenarios.navigation import Navigation

_HEIGHT_M, _FAR_M = 1.0, 1000.0
_APART = 1.5  # clearances between the lines of drones


class PreparedFlight:
    """A case of drones with its robot file, link profile and policy in a folder.

    They take off to 1 m and fly side by side in one direction, at full speed, to goals that they do not reach.
    """

    def __init__(self, case: VendorCase, folder: Path) -> None:
        """Write the files; the policy flies straight to the goal."""
        folder.mkdir(parents=True, exist_ok=True)
        self.case, self._folder = case, folder
        self.spec = write_robot(case, folder)
        write_link(case, folder)
        policy = folder / "policy.onnx"
        write_go_to_goal_policy(policy, self.spec, team_size=case.team_size)
        self._sha256 = PolicyArtefact.load(policy).sha256

    def fleet(self, _number: int) -> Fleet:
        """Return the fleet; all injections have the same one."""
        apart_m = _APART * stop_tube_parameters(self.spec).clearance_m
        robots = {
            f"cf{k + 1}": {
                "type": "robot.toml",
                "initial_position": [0.0, k * apart_m, _HEIGHT_M],
                "initial_yaw": 0.0,
                "goal": [_FAR_M, k * apart_m, _HEIGHT_M],
                "link": {"profile": "link.toml", "onboard_brake": self.case.onboard_brake},
                "pose": dict(self.case.pose),
            }
            for k in range(self.case.team_size)
        }
        return _saved(self._folder, robots, self._sha256)


class PreparedCase:
    """A case with its robot file, link profile and policy in a folder."""

    def __init__(self, case: VendorCase, folder: Path) -> None:
        """Write the files; the policy drives straight to the goal."""
        folder.mkdir(parents=True, exist_ok=True)
        self.case, self._folder = case, folder
        self.spec = write_robot(case, folder)
        write_link(case, folder)
        self.scenario = Navigation.create(self.spec, projection_parameters(self.spec))
        policy = folder / "policy.onnx"
        write_straight_policy(policy, self.spec, self.scenario, case.team_size)
        self._sha256 = PolicyArtefact.load(policy).sha256
        # one program: step by step JAX compiles forty
        self._start = jax.jit(lambda key: self.scenario.own_start(key, case.team_size))

    def fleet(self, number: int) -> Fleet:
        """Return the fleet at the starts and goals of one episode of `navigation`."""
        size = self.case.team_size
        start = self._start(jax.random.key(number))
        places, goals = np.array(start.position_world, float).T, np.array(start.task.goal_world, float).T
        # each robot has its own topic of transforms, as TurtleBot 4 in namespaces have
        tf = self.case.pose["source"] == "tf"
        link = {"profile": "link.toml", "remappings": {"/tf": "tf"}} if tf else "link.toml"
        robots = {
            f"tb{k + 1}": {
                "type": "robot.toml",
                "initial_position": places[k].tolist(),
                "initial_yaw": float(start.yaw[k]),
                "goal": goals[k].tolist(),
                "link": link,
                "pose": dict(self.case.pose),
            }
            for k in range(size)
        }
        return _saved(self._folder, robots, self._sha256)


def prepared(case: VendorCase, folder: Path) -> PreparedCase | PreparedFlight:
    """Write the files of a case into a folder."""
    return (PreparedFlight if load_robot(case.robot).dimension == 3 else PreparedCase)(case, folder)


def _saved(folder: Path, robots: dict[str, Any], sha256: str) -> Fleet:
    tables = {"fileversion": 1, "policy": "policy.onnx", "policy_sha256": sha256, "robots": robots}
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(tables, sort_keys=False), encoding="utf-8")
    return load_fleet(file)
