"""The policy that an evaluation runs: an exported artefact or the newest checkpoint of a training run."""

from dataclasses import dataclass
from pathlib import Path

import jax

from testudo_deploy.contract.command_types import turns
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.arena import Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, parse_robot
from testudo_policies.learning.builder import build, make_environment
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import Environment
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.starts import StartDistribution
from testudo_sim.team.batch_policy import BatchPolicy, artefact_policy


@dataclass(frozen=True)
class PolicyUnderTest:
    """A policy with its scenario and team."""

    policy: BatchPolicy
    memory: int
    scenario: str
    spec: RobotSpec
    shield: ProjectionParameters
    team_size: int
    obstacles: tuple[Obstacle, ...] = ()
    yaw_rate_limit: float = 0.0  # yaw rate limit [rad/s] of a policy that commands a yaw rate, else 0

    def environment(
        self,
        team_size: int,
        *,
        shielded: bool = True,
        all_layers: bool = False,
        physics: PhysicsChoice | None = None,
        starts: StartDistribution | None = None,
    ) -> Environment:
        """Return its scenario with the given team size, physics and start states; ``all_layers``: as deployed."""
        if team_size < 2:
            raise TestudoError(f"--team-size: found {team_size}, expected at least 2 robots")
        environment = make_environment(
            self.scenario,
            self.spec,
            self.shield,
            team_size,
            shielded=shielded,
            physics=physics or PhysicsChoice(),
            obstacles=self.obstacles,
            starts=starts,
            yaw_rate_limit=self.yaw_rate_limit,
        )
        return DeployedEnvironment.of(environment, physics or PhysicsChoice()) if all_layers else environment


def load_policy_under_test(path: Path) -> PolicyUnderTest:
    """Read a policy file or a training run.

    Raises:
        TestudoError: the path is neither, or its contents are invalid.
    """
    return _from_run(path) if path.is_dir() else _from_artefact(path)


def _from_run(folder: Path) -> PolicyUnderTest:
    components = build(load_config(folder))
    policy = jax.jit(components.agent.policy(load_parameters(components, folder)))
    return PolicyUnderTest(
        policy,
        components.config.memory,
        components.config.scenario,
        components.spec,
        components.shield,
        components.config.team_size,
        components.obstacles,
        components.agent.yaw_rate_limit,
    )


def _from_artefact(path: Path) -> PolicyUnderTest:
    artefact = PolicyArtefact.load(path)  # refuses an invalid file
    contract = artefact.contract
    return PolicyUnderTest(
        artefact_policy(artefact),
        contract.hidden_size,
        contract.scenario,
        parse_robot(contract.robot_spec, str(path)),
        contract.shield,
        contract.team_size,
        contract.arena.obstacles if contract.arena is not None else (),
        contract.command.limits[0][1] if turns(contract.command) else 0.0,
    )
