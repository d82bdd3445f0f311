"""Builds the environment, agent and learner of a configuration."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast, get_args

import jax

from testudo_deploy.contract.command_types import tracking_of, velocity_command
from testudo_deploy.contract.contract import VELOCITY_YAW_RATE, WAYPOINT
from testudo_deploy.contract.rules import MOST_NUMBERS
from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_deploy.shield.arena import Obstacle, read_obstacles
from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_policies.distributed import Learner
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.episode_window import Aim
from testudo_policies.learning.hand_teacher import HandTeacher, check_hand_teacher
from testudo_policies.learning.learners import CONTINUOUS, LEARNERS, VALUES_OF_WAYPOINTS
from testudo_policies.learning.ppo import PPO
from testudo_policies.learning.self_play import SelfPlay, check_play
from testudo_policies.learning.sharing import check_sharing, parameter_groups
from testudo_policies.learning.teacher import Student, TeacherEntry, make_student
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.waypoint_choice import WaypointChoice
from testudo_policies.train_config import Commanded, Encoder, TrainConfig
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.environment import Environment
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.robot_number import numbered
from testudo_sim.scenarios.scenario import Scenario, make_scenario
from testudo_sim.starts import StartDistribution, parse_starts
from testudo_sim.team.residual_motion import residual_noise
from testudo_sim.team.task_channel import TaskChannel
from testudo_sim.team.team_tick import SimulatedTeam

_EXACT_NUMBERS = 2**24  # integers that single precision holds
_PRECISIONS = ("highest", "high", "default")
_BOUNDS: tuple[tuple[tuple[str, ...], float, float], ...] = (
    (("self_play",), 0, 1000),
    (("decisions", "worlds", "replay", "rollout", "epochs", "minibatches", "width"), 1, math.inf),
    (("memory", "critic_memory", "most_neighbours"), 0, math.inf),
    (("message",), 0, MOST_NUMBERS),
    (("seed",), 0, 2**31 - 1),
    (("discount", "trace", "starts_share", "failures", "drop_out", "imitation"), 0, 1),
    (("learning_rate", "clip", "max_gradient"), 1e-9, 1e9),
    (("entropy", "value_weight", "change_price", "facing_price", "divergence"), 0, 1e9),
)
"""Options with their lower and upper bound."""


@dataclass(frozen=True)
class TrainingComponents:
    """The parts of a training run."""

    config: TrainConfig
    spec: RobotSpec
    shield: ProjectionParameters
    environment: Environment
    agent: Agent

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """Return the obstacles in the arena."""
        return _obstacles(self.config, self.spec, self.shield)

    @cached_property
    def learner(self) -> Learner:
        """The learner; cached, so that its compiled programs are reused."""
        if self.config.teacher == HAND_WRITTEN:
            check_hand_teacher(self.config)
            student = Student(self.config, self.agent, self.environment, teacher=HandTeacher(self.agent))
            return cast(Learner, student)
        if self.config.teacher:
            theirs = build(TeacherEntry.read(self.config.teacher).config)
            return cast(Learner, make_student(self.config, self.agent, self.environment, theirs))
        plays = self.config.self_play or self.config.against
        kind = SelfPlay if plays else LEARNERS[self.config.algorithm]
        return cast(Learner, kind(self.config, self.agent, self.environment))


def build(config: TrainConfig) -> TrainingComponents:
    """Build the parts of a training run.

    Raises:
        TestudoError: the configuration is invalid; the text names the option.
    """
    _check_single(config)
    _check(config)
    spec = load_robot(config.robot)
    yaw_rate_rad_s = _yaw_rate_limit(config, spec)
    shield = projection_parameters(spec)
    environment = make_environment(
        config.scenario,
        spec,
        shield,
        config.team_size,
        physics=config.physics_choice,
        obstacles=_obstacles(config, spec, shield),
        yaw_rate_limit=yaw_rate_rad_s,
        tracking=_tracking(config, spec),
    ).with_message(config.message)
    task = environment.scenario.for_training()
    task = task if config.sharing == "shared" else numbered(task, config.team_size)
    if config.starts:
        if not hasattr(task, "with_starts"):
            raise TestudoError(
                f"--starts: scenario {config.scenario!r} does not support start files; remove the option"
            )
        task = cast(Any, task).with_starts(parse_starts(config.starts, "--starts"), config.starts_share)
        # checks the team size by tracing, as in `make_environment`
        jax.eval_shape(lambda key: task.start(key, config.team_size), jax.random.key(0))
    _check_trainer(config, task)
    if config.symmetry and not getattr(task, "symmetries", ()):
        raise TestudoError(f"--symmetry: scenario {config.scenario!r} declares none here; remove the option")
    if config.curriculum and not hasattr(task, "at"):
        raise TestudoError(f"--curriculum: scenario {config.scenario!r} has no difficulties; remove the option")
    environment = replace(
        environment,
        scenario=task,
        failures=config.failures,
        curriculum=config.curriculum,
        change_price=config.change_price,
        facing_price=config.facing_price if yaw_rate_rad_s else 0.0,
    )
    if config.layers == "all":
        environment = DeployedEnvironment.of(environment, config.physics_choice)
        _check_message_numbers(config, environment)
    speed_m_s, waypoints = spec.control_point_speed_m_s, None
    if environment.team.tracking is not None:
        waypoints = WaypointChoice.create(speed_m_s, environment.decision_s, task.arena, spec.dimension)
    groups = parameter_groups(config, task)
    check_play(config, task)
    agent = Agent(
        config.networks, spec.dimension, speed_m_s, task.observation, yaw_rate_rad_s, waypoints, config.message, groups
    )
    return TrainingComponents(config, spec, shield, environment, agent)


def _obstacles(config: TrainConfig, spec: RobotSpec, shield: ProjectionParameters) -> tuple[Obstacle, ...]:
    """Return the obstacles of a configuration: those of its map, or of its list."""
    if not config.map:
        return read_obstacles(config.obstacles, spec.dimension, "--obstacles")
    if config.obstacles:
        raise TestudoError("--map: found it with --obstacles; give one of the two")
    return obstacles_of_map(config.map, config.scenario, spec, shield)


def obstacles_of_map(name: str, scenario: str, spec: RobotSpec, shield: ProjectionParameters) -> tuple[Obstacle, ...]:
    """Return the obstacles of a map NAME or NAME:SEED for a robot.

    Raises:
        TestudoError: no such map, or the scenario takes none.
    """
    task: Any = make_scenario(scenario, spec, shield)
    if not hasattr(task, "map_obstacles"):
        raise TestudoError(f"--map: found {name!r}, scenario {scenario!r} takes none; crossing_map does")
    found: tuple[Obstacle, ...] = task.map_obstacles(name)
    return found


def make_environment(
    scenario: str,
    spec: RobotSpec,
    shield: ProjectionParameters,
    team_size: int,
    *,
    shielded: bool = True,
    physics: PhysicsChoice = PhysicsChoice(),  # noqa: B008 -- frozen
    obstacles: tuple[Obstacle, ...] = (),
    starts: StartDistribution | None = None,
    yaw_rate_limit: float = 0.0,
    tracking: WaypointTracking | None = None,
) -> Environment:
    """Return the environment of a scenario for a team of equal robots, with start states ``starts`` if given.

    With a ``yaw_rate_limit`` [rad/s] the last number of a command is a yaw rate; with ``tracking`` a command is a
    way-point.

    Raises:
        TestudoError: the scenario is unknown, the team does not fit the scenario or the starts, or the physics
            does not support it.
    """
    model = motion_model(spec)
    task = make_scenario(scenario, spec, shield, obstacles, starts)
    # tracing refuses a team that does not fit before anything is compiled
    jax.eval_shape(lambda key: task.start(key, team_size), jax.random.key(0))
    tier = make_physics(physics, model, task.arena, team_size, task.boxes)
    team = SimulatedTeam(
        model,
        shield,
        task.arena,
        tier,
        team_size,
        shielded=shielded,
        yaw_rate_limit=yaw_rate_limit,
        tracking=tracking,
        noise=residual_noise(spec, tier),
    )
    spread = 1.0 if starts is None else starts.spread.parameters
    return Environment(task, team, spread=spread, task_channel=TaskChannel() if physics.task_messages else None)


def _yaw_rate_limit(config: TrainConfig, spec: RobotSpec) -> float:
    """Return the largest commanded yaw rate [rad/s]; 0 if the team holds its heading."""
    if config.command_type != VELOCITY_YAW_RATE:
        return 0.0
    missing = [table for table in ("heading", "attitude") if not getattr(spec, table)]
    if missing:
        raise TestudoError(
            f"--command {config.command}: {spec.name} is a {spec.kind} without [{missing[0]}] in its "
            "file; only drones with both tables accept yaw rates; use --command velocity"
        )
    if config.trainer != "testudo":
        raise TestudoError(
            f"--command {config.command}: found --trainer {config.trainer}, expected testudo, the only "
            "trainer of yaw rates"
        )
    return spec.yaw_rate_limit_rad_s


def _tracking(config: TrainConfig, spec: RobotSpec) -> WaypointTracking | None:
    """Return the tracking law of a team that commands way-points; None for others."""
    if config.command_type == WAYPOINT and config.trainer != "testudo":
        raise TestudoError(
            f"--command {config.command}: found --trainer {config.trainer}, expected testudo, the only trainer of "
            "way-points"
        )
    return tracking_of(velocity_command(config.command_type, spec))


def _check_trainer(config: TrainConfig, task: Scenario) -> None:
    if config.trainer == "testudo":
        return
    if config.failures:
        raise TestudoError(
            f"--failures: found {config.failures} with --trainer {config.trainer}, expected testudo, the only trainer "
            "of robots that fail"
        )
    if config.curriculum:
        raise TestudoError(
            f"--curriculum: found it with --trainer {config.trainer}, expected testudo, the only trainer that has one"
        )
    if hasattr(task, "absent"):
        raise TestudoError(
            f"--trainer: found {config.trainer} for scenario {config.scenario!r}, whose robots leave or join; expected "
            "testudo, the only trainer of such tasks"
        )


def _check_message_numbers(config: TrainConfig, environment: Environment) -> None:
    """Messages of all layers are counted in single precision, over the whole run."""
    decisions = config.decisions // config.worlds if config.worlds else 0
    ticks = decisions * environment.scenario.decision_ticks * environment.steps_per_tick
    if ticks > _EXACT_NUMBERS:
        raise TestudoError(
            f"--layers all: found {config.decisions} decisions in {config.worlds} worlds, which are {ticks} ticks, "
            f"expected at most {_EXACT_NUMBERS}; take more worlds"
        )


def _check_algorithm(config: TrainConfig) -> None:
    name = config.algorithm
    if name not in LEARNERS:
        raise TestudoError(f"--algorithm: found {name!r}, expected one of {', '.join(LEARNERS)}")
    if config.trainer != "testudo" and LEARNERS[name] is not PPO:
        raise TestudoError(f"--algorithm {name}: found --trainer {config.trainer}, expected testudo")
    if name in CONTINUOUS and config.command == "waypoints":
        raise TestudoError(f"--algorithm {name}: found --command waypoints, expected velocity, whose value it climbs")
    if name in VALUES_OF_WAYPOINTS:
        if config.command != "waypoints":
            raise TestudoError(
                f"--algorithm {name}: found --command {config.command}, expected waypoints, whose values it learns"
            )
        if config.message:
            raise TestudoError(
                f"--algorithm {name}: found --message {config.message}, expected 0: it learns no messages"
            )
        if config.worlds % config.minibatches:
            raise TestudoError(f"--minibatches: {config.minibatches} does not divide {config.worlds} worlds")


def _check_single(config: TrainConfig) -> None:
    if len(config.scenarios) > 1:
        raise TestudoError(
            f"scenario: found {config.scenario}, which share a trunk; expected one of them, in a run folder RUN: "
            f"{' or '.join(f'RUN/{name}' for name in config.scenarios)}"
        )


def _check(config: TrainConfig) -> None:
    Aim.parsed(config.until)
    if config.message and config.trainer != "testudo":
        raise TestudoError(
            f"--message {config.message}: found --trainer {config.trainer}, expected testudo, the only trainer of "
            "messages"
        )
    if config.command not in get_args(Commanded):
        raise TestudoError(f"--command: found {config.command!r}, expected one of {', '.join(get_args(Commanded))}")
    _check_algorithm(config)
    check_sharing(config)
    if config.network not in get_args(Encoder):
        raise TestudoError(f"--network: found {config.network!r}, expected one of {', '.join(get_args(Encoder))}")
    if config.precision not in _PRECISIONS:
        raise TestudoError(f"--precision: found {config.precision!r}, expected one of {', '.join(_PRECISIONS)}")
    if config.team_size < 2:
        raise TestudoError(f"--team-size: found {config.team_size}, expected at least 2 robots")
    for names, low, high in _BOUNDS:
        for name in names:
            value = getattr(config, name)
            if not low <= value <= high:  # also true for NaN
                expected = f"at least {low}" if high == math.inf else f"{low} to {high}"
                raise TestudoError(f"--{name.replace('_', '-')}: found {value}, expected {expected}")
    if config.worlds * config.team_size % config.minibatches:
        raise TestudoError(
            f"--minibatches: {config.minibatches} does not divide {config.worlds} worlds x {config.team_size} robots"
        )
