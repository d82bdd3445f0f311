"""Start distributions from recorded runs, and their files, for training, evaluation and tests."""

import itertools
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from testudo_deploy.files.strict_yaml import parse_yaml, read_text
from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, read_as

STARTS_SCHEMA = "testudo/starts/1"
Rows = tuple[tuple[float, ...], ...]


class StartsError(TestudoError):
    """Invalid or unsuitable start file: the text gives key, found and expected."""


@dataclass(frozen=True)
class StartSample:
    """One recorded state of the team; rows by robot."""

    position_world: Rows  # (N, D) [m]
    yaw: tuple[float, ...]  # (N,) [rad]
    velocity: Rows  # (N, D): command channels, see `MotionState.velocity`
    goal_world: Rows  # (N, D) [m]
    weight: float = field(default=1.0, metadata=OPTIONAL)  # relative probability


@dataclass(frozen=True)
class StartPerturbation:
    """Uniform perturbations of a recorded start."""

    position_m: float  # ± along each axis
    yaw_rad: float
    velocity_share: float  # ± relative to the velocity
    parameters: float = field(default=1.0, metadata=OPTIONAL)
    """Share of the robot's intervals that dynamics are drawn from."""


@dataclass(frozen=True)
class StartsSource:
    """The recorded run."""

    run: str
    time_s: float  # time of the first start since the start of the run
    incident: str = field(default="", metadata=OPTIONAL)  # its kind
    what: str = field(default="", metadata=OPTIONAL)  # what happened, in one sentence
    goals: str = field(default="", metadata=OPTIONAL)  # origin of the goals


@dataclass(frozen=True)
class StartDistribution:
    """Recorded starts of worlds; hashable, so that it can be a constant of compiled programs."""

    schema: str
    robot: str  # kind of all its robots
    robots: tuple[str, ...]  # names, in the order of the rows
    source: StartsSource
    horizon_s: float  # duration of an episode
    spread: StartPerturbation
    starts: tuple[StartSample, ...]
    arena: Arena | None = field(default=None, metadata=OPTIONAL)
    """Walls and obstacles of the run; None leaves the scenario's own."""

    @property
    def size(self) -> int:
        """Return the number of robots."""
        return len(self.robots)

    @property
    def least_distance_m(self) -> float:
        """Return the least distance of two robots in any start [m]."""
        return min(
            math.dist(one, other)
            for start in self.starts
            for one, other in itertools.combinations(start.position_world, 2)
        )

    def check(self, where: str) -> None:
        """Refuse invalid values; ``where`` names the file in errors.

        Raises:
            StartsError: no start, rows of wrong size, an invalid spread or weight, or no duration.
        """
        if self.schema != STARTS_SCHEMA:
            raise StartsError(f"{where}: schema: found {self.schema!r}, expected {STARTS_SCHEMA!r}")
        if self.size < 2 or not self.starts:
            raise StartsError(
                f"{where}: found {self.size} robots and {len(self.starts)} starts, expected at least 2 and 1"
            )
        numbers = {"horizon_s": self.horizon_s} | {f"spread.{key}": one for key, one in asdict(self.spread).items()}
        for name, value in numbers.items():
            if value < 0 or (name == "horizon_s" and value == 0):
                raise StartsError(f"{where}: {name}: found {value}, expected a number above zero")
        dimension = len(self.starts[0].position_world[0]) if self.starts[0].position_world else 0
        for k, start in enumerate(self.starts):
            self._check_start(start, dimension, f"{where}: starts[{k}]")
        if self.arena is not None and len(self.arena.low_world) != dimension:
            raise StartsError(f"{where}: arena: found {len(self.arena.low_world)} axes, expected {dimension}")

    def _check_start(self, start: StartSample, dimension: int, where: str) -> None:
        if start.weight <= 0:
            raise StartsError(f"{where}.weight: found {start.weight}, expected a number above zero")
        if len(start.yaw) != self.size:
            raise StartsError(f"{where}.yaw: found {len(start.yaw)} numbers, expected {self.size}, one for each robot")
        for name in ("position_world", "velocity", "goal_world"):
            rows = getattr(start, name)
            if len(rows) != self.size or any(len(row) != dimension or dimension not in (2, 3) for row in rows):
                raise StartsError(
                    f"{where}.{name}: found rows of {[len(row) for row in rows]} numbers, expected "
                    f"{self.size} rows of 2 or 3, the same everywhere"
                )

    def check_fits(self, spec: RobotSpec, team_size: int, where: str) -> None:
        """Refuse starts of other robots, or with overlapping robots.

        Raises:
            StartsError: another kind or number of robots, or an overlap.
        """
        if self.robot != spec.name:
            raise StartsError(f"{where}: robot: found {self.robot!r}, expected {spec.name!r}, for which the policy is")
        if self.size != team_size:
            raise StartsError(
                f"{where}: robots: found {self.size}, the team has {team_size}; give --team-size {self.size}"
            )
        for k, start in enumerate(self.starts):
            for (i, one), (j, other) in itertools.combinations(enumerate(start.position_world), 2):
                if len(one) != spec.dimension or math.dist(one, other) < 2 * spec.body_radius_m:
                    raise StartsError(
                        f"{where}: starts[{k}]: {self.robots[i]} and {self.robots[j]} are "
                        f"{math.dist(one, other):.3g} m apart, expected at least "
                        f"{2 * spec.body_radius_m:.3g} m: they would touch; save an earlier moment"
                    )

    def draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Draw one world: position (D, N), yaw (N,), velocity (D, N) and goals (D, N)."""
        choice, place, turn, speed = jax.random.split(key, 4)
        weights = np.array([start.weight for start in self.starts])
        index = jax.random.choice(choice, len(self.starts), p=jnp.asarray(weights / weights.sum()))

        def picked(name: str) -> jax.Array:
            rows = np.array([getattr(start, name) for start in self.starts], np.float32)
            return jnp.asarray(rows)[index].T

        position, yaw, velocity = picked("position_world"), picked("yaw"), picked("velocity")
        spread = self.spread
        position = position + spread.position_m * jax.random.uniform(place, position.shape, minval=-1.0)
        yaw = yaw + spread.yaw_rad * jax.random.uniform(turn, yaw.shape, minval=-1.0)
        velocity = velocity * (1 + spread.velocity_share * jax.random.uniform(speed, velocity.shape, minval=-1.0))
        return position, yaw, velocity, picked("goal_world")


def load_starts(path: str | Path) -> StartDistribution:
    """Read and check a start file.

    Raises:
        StartsError: unreadable, another schema, an unknown or missing key, or numbers that do not fit.
    """
    kind = "start file; `testudo incident RUN --save-scenario FILE` writes one"
    return parse_starts(read_text(Path(path), kind, StartsError, "a start file"), str(path))


def parse_starts(text: str, where: str) -> StartDistribution:
    """Read the text of a start file; ``where`` names it in errors.

    Raises:
        StartsError: see `load_starts`.
    """
    starts: StartDistribution = read_as(StartDistribution, parse_yaml(text, where, StartsError), where, StartsError)
    starts.check(where)
    return starts


def save_starts(starts: StartDistribution, path: str | Path) -> Path:
    """Write a start file and return its path.

    Raises:
        StartsError: the numbers do not fit, or the file cannot be written.
    """
    file = Path(path)
    starts.check(str(file))
    head = f"# Start states of a real run: testudo evaluate POLICY --starts {file.name}\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(head + starts_text(starts), encoding="utf-8")
    except OSError as error:
        raise StartsError(f"{file}: cannot be written: {error.strerror}") from error
    return file


def starts_text(starts: StartDistribution) -> str:
    """Return the text of a start file."""
    values = _plain(asdict(starts))
    if starts.arena is None:
        del values["arena"]
    return yaml.dump(values, Dumper=_FlowLists, sort_keys=False, width=110)


def _plain(value: Any) -> Any:
    """Return tuples as lists, and numbers rounded to 1e-6."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


class _FlowLists(yaml.SafeDumper):
    """Writes rows of numbers on one line."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        """Write a sequence without mappings on one line."""
        flat = not any(isinstance(item, dict) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=flat)
