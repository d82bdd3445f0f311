"""A vendor's robots at the starts and goals of `navigation`."""

from pathlib import Path

import jax
import numpy as np
import yaml

from testudo_bench.emulated.straight_policy import write_straight_policy
from testudo_bench.emulated.vendor_cases import VendorCase, write_link, write_robot
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_sim.scenarios.navigation import Navigation


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
        tables = {"fileversion": 1, "policy": "policy.onnx", "policy_sha256": self._sha256, "robots": robots}
        file = self._folder / "fleet.yaml"
        file.write_text(yaml.safe_dump(tables, sort_keys=False), encoding="utf-8")
        return load_fleet(file)
