"""The policy that an evaluation runs: an exported artefact or the newest checkpoint of a training run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import jax
import numpy as np

from testudo_deploy.contract.command_types import limited_yaw_rate_of, tracking_of
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_deploy.shield.arena import Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot, parse_robot
from testudo_hardware.strict_files import read_as
from testudo_policies.evaluation.side_by_side import side_by_side
from testudo_policies.learning.builder import TrainingComponents, build, make_environment, obstacles_of_map
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.sharing import group_names
from testudo_policies.learning.training_run import load_met_opponent, load_parameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import Environment
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.scenarios.robot_number import has_numbers, numbered
from testudo_sim.scenarios.scenario_check import check_scenario
from testudo_sim.starts import StartDistribution
from testudo_sim.team.batch_policy import BatchPolicy, artefact_policy
from testudo_sim.team.task_channel import TaskChannel


@dataclass(frozen=True)
class PolicyUnderTest:
    """A policy with its scenario and team."""

    policy: BatchPolicy | None  # None: the hand-written velocities of the scenario
    memory: int
    scenario: str
    spec: RobotSpec
    shield: ProjectionParameters
    team_size: int
    obstacles: tuple[Obstacle, ...] = ()
    make_untrained: Callable[[], BatchPolicy | None] = lambda: None
    """Returns the same networks before training; None if it is not known how they were trained."""
    yaw_rate_limit: float = 0.0  # yaw rate limit [rad/s] of a policy that commands a yaw rate, else 0
    tracking: WaypointTracking | None = None  # of a policy that chooses way-points
    message_size: int = 0  # numbers that the policy says to its peers
    numbered: bool = False  # robots have parameters of their own, for teams of this size
    map: str = ""  # map of obstacles in training, as `TrainConfig.map`
    task_messages: bool = True  # whether training had the age of the task's messages
    note: str = ""  # what a reader of the figures must know

    def environment(
        self,
        team_size: int,
        *,
        shielded: bool = True,
        all_layers: bool = False,
        physics: PhysicsChoice | None = None,
        starts: StartDistribution | None = None,
        failures: float = 0.0,
        channels: Channels = Channels(),  # noqa: B008 -- frozen
        task_channel: TaskChannel | None = None,
    ) -> Environment:
        """Return its scenario with the given team size, physics and start states; ``all_layers``: as deployed.

        ``failures`` is the probability that a robot fails during an episode; ``channels`` is the radio between robots,
        and ``task_channel`` that of the task, None for what the physics options say.
        """
        if not 0 <= failures <= 1:
            raise TestudoError(f"--failures: found {failures}, expected 0 to 1")
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
            tracking=self.tracking,
        ).with_message(self.message_size)
        team = replace(environment.team, channels=channels)
        environment = replace(
            environment, team=team, failures=failures, task_channel=task_channel or environment.task_channel
        )
        if self.numbered:
            task = numbered(environment.scenario, self.team_size)
            jax.eval_shape(lambda key: task.start(key, team_size), jax.random.key(0))  # refuses other teams
            environment = replace(environment, scenario=task)
        return DeployedEnvironment.of(environment, physics or PhysicsChoice()) if all_layers else environment


def load_policy_under_test(path: Path) -> PolicyUnderTest:
    """Read a policy file or a training run.

    Raises:
        TestudoError: the path is neither, or its contents are invalid.
    """
    return _from_run(path) if path.is_dir() else _from_artefact(path)


def by_hand(scenario: str, robot: str, team_size: int, map_name: str = "") -> PolicyUnderTest:
    """Return the hand-written velocities of a registered scenario, for a robot, a name or a file.

    ``map_name`` is a map of obstacles, as `TrainConfig.map`; empty: none.

    Raises:
        TestudoError: the robot, the scenario or the map is unknown, or the scenario breaks a rule.
    """
    spec = load_robot(robot)
    check_scenario(scenario, spec, team_size)
    shield = projection_parameters(spec)
    obstacles = obstacles_of_map(map_name, scenario, spec, shield) if map_name else ()
    return PolicyUnderTest(None, 0, scenario, spec, shield, team_size, obstacles, map=map_name)


def _from_run(folder: Path) -> PolicyUnderTest:
    components = build(load_config(folder))
    policy = jax.jit(components.agent.policy(load_parameters(components, folder)))
    found = PolicyUnderTest(
        policy,
        components.config.memory,
        components.config.scenario,
        components.spec,
        components.shield,
        components.config.team_size,
        components.obstacles,
        partial(untrained_policy, components),
        components.agent.yaw_rate_limit,
        components.environment.team.tracking,
        components.agent.message_size,
        bool(components.agent.groups),
        components.config.map,
        components.config.task_messages,
    )
    return _with_opponent(found, components, folder) if components.config.against else found


def _with_opponent(response: PolicyUnderTest, components: TrainingComponents, folder: Path) -> PolicyUnderTest:
    """Return the team in which one role is the best response, and the others are the opponent that it met."""
    config, scenario = components.config, components.environment.scenario
    role = group_names(config, scenario).index(config.role)
    side_of = np.where(np.array(components.agent.groups) == role, 0, 1)
    theirs = replace(response, policy=jax.jit(components.agent.policy(load_met_opponent(components, folder))))

    def beside_them(own: BatchPolicy | None) -> tuple[BatchPolicy, int]:
        return side_by_side([replace(response, policy=own), theirs], side_of)

    policy, memory = beside_them(response.policy)
    return replace(
        response,
        policy=policy,
        memory=memory,
        make_untrained=lambda: beside_them(untrained_policy(components))[0],
        note=f"a best response: {config.role} has learnt, all others drive by the policy of {config.against}",
    )


def untrained_policy(components: TrainingComponents) -> BatchPolicy:
    """Return the policy before its training, with the parameters of its seed."""
    parameters = components.learner.start(jax.random.key(components.config.seed)).parameters
    return cast(BatchPolicy, jax.jit(components.agent.policy(parameters)))


def _from_artefact(path: Path) -> PolicyUnderTest:
    artefact = PolicyArtefact.load(path)  # refuses an invalid file
    contract = artefact.contract
    config = contract.provenance.get("config", {})  # files that are no result of `testudo train` have none
    return PolicyUnderTest(
        artefact_policy(artefact),
        contract.hidden_size,
        contract.scenario,
        parse_robot(contract.robot_spec, str(path)),
        contract.shield,
        contract.team_size,
        contract.arena.obstacles if contract.arena is not None else (),
        partial(_untrained_of, contract, str(path)),
        limited_yaw_rate_of(contract.command),
        tracking_of(contract.command),
        contract.command.message_size,
        has_numbers(contract),
        str(config.get("map", "")),
        bool(config.get("task_messages", True)),
    )


def _untrained_of(contract: Contract, where: str) -> BatchPolicy | None:
    """Return the policy of a file before its training; None if the file does not say how this version can make it."""
    try:
        config = read_as(TrainConfig, contract.provenance.get("config"), where, TestudoError)
        components = build(config)
    except TestudoError:
        return None
    return untrained_policy(components) if config.memory == contract.hidden_size else None
