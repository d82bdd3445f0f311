"""What a training run is made of; saved beside its checkpoints and in the artefact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import tyro

from testudo_deploy.contract.parts import COMMAND_TYPE, VELOCITY_YAW_RATE
from testudo_hardware.files.strict_json import OPTIONAL
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_sim.physics_choice import Form, Impl, PhysicsChoice, Tier

Commanded = Literal["velocity", "velocity_yaw_rate"]


@dataclass(frozen=True)
class TrainConfig:
    """Everything that, with the seed, determines a training run."""

    scenario: Annotated[str, tyro.conf.Suppress] = "navigation"
    """Registered scenario."""
    robot: str = "gritsbot_x"
    """Registered robot, or the path of a TOML file."""
    team_size: int = 4
    """Robots in a world."""
    command: Commanded = field(default="velocity", metadata=OPTIONAL)
    """What the policy commands: a velocity, of drones with the heading held; or, for drones only, a yaw rate beside it,
    which learns to look where the goal is."""
    facing_price: float = field(default=0.25, metadata=OPTIONAL)
    """With `--command velocity_yaw_rate`: reward that each second costs in which a drone looks at right angles to where
    its goal is; away from it twice that."""
    algorithm: str = "mappo"
    """`mappo` (central critic) or `ippo`."""
    physics: Tier = "kinematic"
    """`kinematic` is fast and has no contact; `mjx` is MuJoCo under JAX; `mujoco` is C MuJoCo, the reference."""
    form: Form = "wheels"
    """Ground robots in MuJoCo: `wheels` in contact with the floor, or `planar` discs, many times as fast."""
    impl: Impl = "auto"
    """MJX: `jax` anywhere, `warp` on NVIDIA with mujoco-warp; `auto` takes what is there."""
    downwash: bool = field(default=True, metadata=OPTIONAL)
    """Tiers `attitude` and `rotors`: drones push down those in their wake."""
    battery: bool = field(default=False, metadata=OPTIONAL)
    """All tiers in which drones fly: batteries begin anywhere from full to `power.land` of the robot file, empty with
    thrust, and limit it by their voltage."""
    trainer: str = "testudo"
    """`testudo`, or `brax-ppo` and `brax-sac` of brax, which train the same network without memory."""
    obstacles: str = field(default="", metadata=OPTIONAL)
    """What stands in the arena, as a JSON list: `[{"kind": "ball", "centre_world": [0.5, 0], "radius_m": 0.2}]`."""
    starts: Annotated[str, tyro.conf.Suppress] = field(default="", metadata=OPTIONAL)
    """What a part of the worlds begins from: the text of a start file (`testudo train --starts FILE` puts it here)."""
    starts_share: float = field(default=0.5, metadata=OPTIONAL)
    """Share of the worlds that begin from `--starts`; the others begin as ever."""
    memory: int = 32
    """Units of the GRU; 0 is feed-forward."""
    width: int = 64
    """Units of the hidden layers."""
    seed: int = 0
    """Seed of everything."""
    decisions: int = 700_000
    """Environment decisions to train for (worlds x decisions)."""
    worlds: int = 256
    """Worlds that run at once; 0 chooses as many as the devices' memory and the run's length allow."""
    rollout: int = 32
    """Decisions of each world between updates."""
    epochs: int = 2
    """Passes over a rollout."""
    minibatches: int = 8
    """Parts of a rollout for one gradient step each."""
    learning_rate: float = 1e-3
    """First learning rate; it falls linearly to a tenth."""
    discount: float = 0.99
    """Per decision."""
    trace: float = 0.95
    """Lambda of the generalised advantage estimate."""
    clip: float = 0.2
    """Clip range of the policy ratio."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    max_gradient: float = 0.5
    """Largest norm of a gradient."""
    change_price: float = 0.2
    """Reward that a command costs when the shield changes it by the full speed."""
    precision: str = "highest"
    """Matrix products of the networks in training: `highest` is float32 everywhere; `high` and `default` are
    coarser and faster on accelerators. Export and robot always use float32."""

    @property
    def network(self) -> NetworkConfig:
        """Return the networks' sizes."""
        return NetworkConfig(self.width, self.memory, self.algorithm == "mappo")

    @property
    def physics_choice(self) -> PhysicsChoice:
        """Return the physics below the scenario."""
        return PhysicsChoice(self.physics, self.form, self.impl, self.downwash, self.battery)

    @property
    def command_type(self) -> str:
        """Return the type of command as a contract names it."""
        return VELOCITY_YAW_RATE if self.command == "velocity_yaw_rate" else COMMAND_TYPE

    @property
    def updates(self) -> int:
        """Return the number of updates in the run."""
        return max(1, round(self.decisions / (self.worlds * self.rollout)))


SUGGESTED: Mapping[str, Mapping[str, float]] = {
    # the shield changes every command of a team in a ring, and a price on that teaches to stand; teams that turn
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
}
"""What a scenario learns well with, by option."""


def suggested(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the configuration with what its scenario suggests, and a line about it.

    If any of the options that it has a word on is not as it is by default, all of them stay.
    """
    wishes, usual = SUGGESTED.get(config.scenario, {}), TrainConfig()
    if not wishes or any(getattr(config, name) != getattr(usual, name) for name in wishes):
        return config, ""
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in wishes.items())
    return replace(config, **wishes), f"{config.scenario}: trains with {options}; give one of them, and all are yours"
