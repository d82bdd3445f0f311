"""Configuration of a training run; saved with its checkpoints and in the artefact."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import tyro

from testudo_deploy.contract.contract import COMMAND_TYPE, VELOCITY_YAW_RATE, WAYPOINT
from testudo_hardware.strict_files import OPTIONAL
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_sim.physics_choice import Form, Impl, PhysicsChoice, Tier

Sharing = Literal["shared", "none", "role"]
Encoder = Literal["pooled", "attention"]
Layers = Literal["1", "all"]
Commanded = Literal["velocity", "velocity_yaw_rate", "waypoints"]
_CENTRAL = ("mappo", "qmix", "maddpg", "hasac", "masac")  # algorithms whose critic reads the true state of the team
_COMMAND_TYPES = {"velocity": COMMAND_TYPE, "velocity_yaw_rate": VELOCITY_YAW_RATE, "waypoints": WAYPOINT}


@dataclass(frozen=True)
class TrainConfig:
    """Everything that, with the seed, determines a training run."""

    scenario: Annotated[str, tyro.conf.Suppress] = "navigation"  # registered scenario, or several joined by `+`
    trunk: Annotated[str, tyro.conf.Suppress] = field(default="", metadata=OPTIONAL)
    """All scenarios of the run, joined by `+`, where this is one of several with a shared trunk."""
    robot: str = "gritsbot_x"  # registered robot, or the path of a TOML file
    team_size: int = 4  # robots in a world
    command: Commanded = field(default="velocity", metadata=OPTIONAL)
    """What the policy commands: a velocity (drones hold their heading), or for drones also a yaw rate, with which they
    learn to face the goal; or, at each decision, one of the way-points of the Robotarium suite: to stay, or a step
    along an axis."""
    message: int = field(default=0, metadata=OPTIONAL)
    """Numbers in -1 to 1 that the policy says to its peers at each decision, and that they read as the signal
    `neighbour_message`; they travel with the announcements, with their delay and loss."""
    facing_price: float = field(default=0.25, metadata=OPTIONAL)
    """With `--command velocity_yaw_rate`: reward lost per second while a drone's heading is perpendicular to the
    direction of its goal; twice that while it faces away."""
    algorithm: str = "mappo"
    """PPO with a central critic (`mappo`) or without (`ippo`); for way-points also `pqn-vdn`, `vdn`, `qmix`; for
    velocities `maddpg`, `hasac`, `masac`."""
    sharing: Sharing = field(default="shared", metadata=OPTIONAL)
    """Whose parameters a robot has: `shared` by all; `none`: its own; `role`: those of its role, in scenarios with
    roles. Policies that are not shared fit this team size only."""
    shared_experience: bool = field(default=False, metadata=OPTIONAL)
    """With `ippo` and `--sharing none`: each robot also learns from what the others lived through (SEAC)."""
    joint_ratio: bool = field(default=False, metadata=OPTIONAL)
    """With `mappo` or `ippo`: clip the product of the ratios of all robots of a world, in place of each."""
    symmetry: bool = field(default=False, metadata=OPTIONAL)
    """With `mappo` or `ippo` and `--memory 0`: learn also from each step as it would be in a mirror, or turned, where
    the scenario declares that nothing differs there, such as `navigation`."""
    self_play: int = field(default=0, metadata=OPTIONAL)
    """With `mappo` or `ippo` and `--sharing role`: number of earlier policies of this run, taken evenly, that stay as
    opponents, beside which the newest policies of the roles learn; 0: the newest ones meet each other only."""
    against: str = field(default="", metadata=OPTIONAL)
    """With `mappo` or `ippo` and `--sharing role`: run folder whose newest policy is the opponent, and does not learn;
    `--role` alone does, and becomes the best response to it."""
    role: str = field(default="", metadata=OPTIONAL)
    """With `--against`: the role that learns, such as `prey`."""
    teacher: str = field(default="", metadata=OPTIONAL)
    """With `mappo` or `ippo`: run folder, or policy.onnx in one, of a policy that the student imitates first. It may be
    of another scenario of the same task, which sees more of it. A run keeps its teacher's policy and configuration. Or
    `hand-written`: the velocities of the scenario by hand, which know the whole state."""
    imitation: float = field(default=0.5, metadata=OPTIONAL)
    """With `--teacher`: share of the run, from its begin on, in which the student only imitates (DAgger); then it
    learns from the reward as well."""
    divergence: float = field(default=1.0, metadata=OPTIONAL)
    """With `--teacher`: weight of the divergence from the teacher while the student imitates; from there on it falls
    linearly, to zero at the end of the run."""
    physics: Tier = "kinematic"
    """`kinematic` is fast and has no contact forces; `mjx` is MuJoCo under JAX; `mujoco` is C MuJoCo, the reference."""
    form: Form = "wheels"
    """Ground robots in MuJoCo: `wheels` in contact with the floor, or `planar` discs, which are much faster."""
    impl: Impl = "auto"  # MJX: `jax` anywhere, `warp` on NVIDIA with mujoco-warp; `auto` uses what is installed
    layers: Layers = field(default="1", metadata=OPTIONAL)
    """Layers of the shield under which the policy learns: `1`, the projection, at ticks of one clock; or `all`, as on
    robots: reserved segments, right of way, messages with echo, and ticks of each robot in its own phase. It takes
    about ten times as long, and pays where `testudo evaluate --layers all` finds less than layer 1."""
    downwash: bool = field(default=True, metadata=OPTIONAL)
    """Tiers `attitude` and `rotors`: simulate the downwash of drones."""
    battery: bool = field(default=False, metadata=OPTIONAL)
    """All tiers with drones: batteries start between full and `power.land` of the robot file, are discharged by
    thrust, and limit it by their voltage."""
    trainer: str = "testudo"  # `testudo`, or `brax-ppo` or `brax-sac`, which train the same network without memory
    task_messages: bool = field(default=True, metadata=OPTIONAL)
    """Policies read the signals of the task as old as messages bring them to a robot; `--no-task-messages`: exact, of
    the present."""
    obstacles: str = field(default="", metadata=OPTIONAL)
    """Obstacles in the arena, as a JSON list: `[{"kind": "ball", "centre_world": [0.5, 0], "radius_m": 0.2}]`."""
    map: str = field(default="", metadata=OPTIONAL)
    """Map of obstacles for `crossing_map`, as NAME or NAME:SEED: `camar_random_grid_60`, `maze:3`."""
    starts: Annotated[str, tyro.conf.Suppress] = field(default="", metadata=OPTIONAL)
    """Contents of a start file for a share of the worlds (set by `testudo train --starts FILE`)."""
    starts_share: float = field(default=0.5, metadata=OPTIONAL)
    """Share of the worlds that start from `--starts`; the others use the scenario's starts."""
    failures: float = field(default=0.0, metadata=OPTIONAL)
    """Probability that a robot fails during an episode: it brakes, half of them for good, the others for 2 to 10 s."""
    curriculum: bool = field(default=False, metadata=OPTIONAL)
    """Train with rising difficulty: each world begins with the easiest starts of the scenario, goes on to harder ones
    after success, and back after failure. For scenarios with `at(difficulty)`, such as `material_transport`."""
    memory: int = 32  # units of the GRU; 0 is feed-forward
    critic_memory: int = field(default=0, metadata=OPTIONAL)
    """Units of a GRU of the central critic of `mappo`, which then also knows the lag, delays and losses that were drawn
    for its world; 0: a critic of the present state alone."""
    width: int = 64  # units of the hidden layers
    network: Encoder = field(default="pooled", metadata=OPTIONAL)
    """How networks read neighbours and entities: `pooled`, the maximum over the neighbours, and attention within each
    group of entities; or `attention` over all of them together."""
    drop_out: float = field(default=0.0, metadata=OPTIONAL)
    """Share of neighbours, and of entities that may be absent, that the policy does not see in a decision of the
    training, drawn anew at each; the nearest two of each kind always are seen. Shield and central critic see all."""
    most_neighbours: int = field(default=0, metadata=OPTIONAL)
    """Neighbours that the policy sees at once, also in the exported file; 0: all. Of more, in larger teams, it sees the
    nearest two, and of the others as many as are left, drawn anew at each decision. Shield and central critic see
    all."""
    seed: int = 0  # random seed of the run
    decisions: int = 700_000  # environment decisions to train for (worlds x decisions)
    until: str = field(default="", metadata=OPTIONAL)
    """Stop earlier: once the newest episodes reach `success=0.98`, or `return=110`, or, with `flat`, once the return
    that has risen rises no more."""
    worlds: int = 256
    """Worlds simulated in parallel; 0 chooses the largest number that fits device memory and run length."""
    replay: int = field(default=200_000, metadata=OPTIONAL)
    """Decisions that a learner from replay keeps; `mappo`, `ippo` and `pqn-vdn` keep none."""
    rollout: int = 32  # decisions of each world between updates
    epochs: int = 2  # passes over a rollout
    minibatches: int = 8  # minibatches of a rollout, with one gradient step each
    learning_rate: float = 1e-3  # initial learning rate; it decreases linearly to a tenth
    discount: float = 0.99  # per decision
    trace: float = 0.95  # lambda of the generalised advantage estimate
    clip: float = 0.2  # clip range of the policy ratio
    entropy: float = 0.0  # weight of the entropy bonus
    value_weight: float = 0.5  # weight of the value loss
    max_gradient: float = 0.5  # largest norm of a gradient
    change_price: float = 0.2  # reward lost when the shield changes a command by the full speed
    precision: str = "highest"
    """Matrix products of the networks in training: `highest` is float32 everywhere; `high` and `default` are
    coarser and faster on accelerators. Export and robot always use float32."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Return the names of the scenarios."""
        return tuple(self.scenario.split("+"))

    @property
    def networks(self) -> NetworkConfig:
        """Return kind and sizes of the networks."""
        attention, central = self.network == "attention", self.algorithm in _CENTRAL
        sizes = self.width, self.memory, central, attention, self.critic_memory
        return NetworkConfig(*sizes, self.drop_out, self.most_neighbours)

    @property
    def physics_choice(self) -> PhysicsChoice:
        """Return the physics options of the environment."""
        return PhysicsChoice(self.physics, self.form, self.impl, self.downwash, self.battery, self.task_messages)

    @property
    def command_type(self) -> str:
        """Return the command type of the contract."""
        return _COMMAND_TYPES[self.command]

    @property
    def updates(self) -> int:
        """Return the number of updates in the run."""
        return max(1, round(self.decisions / (self.worlds * self.rollout)))


SUGGESTED: Mapping[str, Mapping[str, Any]] = {
    # in a ring the shield changes every command, and a price on that teaches robots to stand still; teams that turn
    # together need no memory
    "swap": {
        "decisions": 300_000,
        "memory": 0,
        "rollout": 16,
        "epochs": 4,
        "learning_rate": 2e-3,
        "discount": 0.98,
        "change_price": 0.0,
    },
    # a price of the shield's changes would decide who has won
    "chase": {"sharing": "role", "memory": 0, "change_price": 0.0},
    # velocities drive to what is next and learn no detour: 0.05 of success and 5 deliveries (docs/results.md)
    "material_transport": {"command": "waypoints", "entropy": 0.01, "decisions": 3_000_000},
    "rware": {"command": "waypoints", "entropy": 0.01, "decisions": 1_500_000},
}
"""Options that a scenario trains well with."""


_VALUES = {"command": "waypoints", "max_gradient": 10.0, "learning_rate": 5e-4}
_REPLAYED = {"memory": 0, "max_gradient": 10.0, "epochs": 4}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "pqn-vdn": {**_VALUES, "trace": 0.3},
    "vdn": _VALUES,
    "qmix": _VALUES,
    "maddpg": _REPLAYED,
    "hasac": _REPLAYED,
    "masac": _REPLAYED,
}
"""Options that an algorithm needs, or trains well with."""


def suggested(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the configuration with the options that its algorithm and its scenario suggest, and a message.

    The algorithm's are set one by one, where the user left the default. Of the scenario's, all stay unchanged if the
    user changed any; so they do with a trainer that takes no way-points where these are among them.
    """
    chosen = {
        name: value
        for name, value in ALGORITHMS.get(config.algorithm, {}).items()
        if getattr(config, name) == getattr(TrainConfig, name)
    }
    if chosen:
        return replace(config, **chosen), f"{config.algorithm}: trains with {_as_options(chosen)}"
    options, default = SUGGESTED.get(config.scenario, {}), TrainConfig()
    if config.trainer != "testudo" and "command" in options:
        return config, ""
    if not options or any(getattr(config, name) != getattr(default, name) for name in options):
        return config, ""
    text = _as_options(options)
    return replace(config, **options), f"{config.scenario}: trains with {text}; set one of them to choose all yourself"


def for_fine_tuning(config: TrainConfig) -> TrainConfig:
    """Return the configuration with which PPO goes on from the policy of any algorithm."""
    # recorded steps have neither whole teams nor the memory of a critic, and a run no opponents of its own
    config = replace(
        config,
        critic_memory=0,
        joint_ratio=False,
        symmetry=False,
        trunk="",
        shared_experience=False,
        self_play=0,
        against="",
        role="",
        teacher="",
    )
    others = [name for name in ALGORITHMS.get(config.algorithm, {}) if name not in ("command", "memory")]
    return replace(config, **{name: getattr(TrainConfig, name) for name in (*others, *["algorithm"] * bool(others))})


def _as_options(options: Mapping[str, Any]) -> str:
    """Return options as they are written on the command line."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
