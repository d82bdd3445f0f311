"""Candidates of the screen: a task, and a plant whose true dynamics differ from the robot file.

A candidate tells ways of learning apart only if a policy that was trained in the true dynamics does better on the plant
than one that was trained in the described dynamics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import ATTITUDE, QUANTITIES
from testudo_hardware.spec import Quantity, RobotSpec
from testudo_policies.train_config import TrainConfig

TIME = "time"
"""Score by the time to success [s]; an episode without success counts as the time limit. Less is better."""


@dataclass(frozen=True)
class Change:
    """True value of a quantity of the robot file: the described one times a factor, and something added."""

    factor: float = 1.0
    added: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """A task on a plant that is not as described."""

    name: str
    about: str
    scenario: str
    changes: Mapping[str, Change]  # by `table.key` of the robot file
    score: str  # a metric of the scenario, whose mean sum of an episode counts; or `TIME`
    robot: str = "gritsbot_x"
    team_size: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)  # of `TrainConfig`
    needs_accelerator: bool = False

    @property
    def more_is_better(self) -> bool:
        """Return whether a higher score is a better one."""
        return self.score != TIME

    def plant_of(self, spec: RobotSpec) -> RobotSpec:
        """Return the robot with the plant's dynamics for the simulation of its motion.

        What the robot computes itself, its prediction and its shield, stays as described. A quantity that the file
        does not have, such as a slip, is added to what the simulation draws.

        Raises:
            TestudoError: the schema of robot files has no such quantity.
        """
        tables = {"quantities": dict(spec.quantities), "attitude": dict(spec.attitude)}
        for key, change in self.changes.items():
            table, rules = ("attitude", ATTITUDE) if key in ATTITUDE else ("quantities", QUANTITIES)
            if key not in rules:
                raise TestudoError(f"{self.name}: {key} is no quantity of a robot file")
            described = tables[table].get(key)
            before = rules[key].default or 0.0 if described is None else described.value
            value = change.factor * before + change.added
            tables[table][key] = Quantity(value, rules[key].unit, "the plant of the study", value, value)
        return replace(spec, **tables)

    def config(self, worlds: int, updates: int) -> TrainConfig:
        """Return the configuration of a training."""
        made = TrainConfig(
            scenario=self.scenario,
            robot=self.robot,
            team_size=self.team_size,
            memory=0,
            width=32,
            worlds=worlds,
            rollout=32,
            minibatches=4,
        )
        return replace(made, decisions=updates * worlds * made.rollout, **self.options)

    def to_dict(self) -> dict[str, Any]:
        """Return what a saved result belongs to, JSON-ready."""
        return {
            "scenario": self.scenario,
            "robot": self.robot,
            "team_size": self.team_size,
            "changes": {key: [change.factor, change.added] for key, change in self.changes.items()},
            "score": self.score,
            "options": dict(self.options),
        }


_LAG = "dynamics.velocity_lag"
CANDIDATES = (
    Candidate(
        "gates_lag",
        "ground robots through gates at top speed: 6 times the lag, and 150 ms more delay",
        "gates",
        {_LAG: Change(6.0), "dynamics.command_delay": Change(added=0.15)},
        "gates",
    ),
    Candidate(
        "gates_slip",
        "as above: a robot that turns slows down, which its file does not say",
        "gates",
        {"dynamics.turn_slip": Change(added=0.5)},
        "gates",
    ),
    Candidate(
        "drone_gates_lag",
        "drones through gates at top speed: 3 times the lag of the velocity",
        "gates",
        {_LAG: Change(3.0)},
        "gates",
        robot="crazyflie_2x",
    ),
    Candidate(
        "deliveries_slip",
        "lifelong deliveries: a robot that turns slows down, which its file does not say",
        "pickup_delivery",
        {"dynamics.turn_slip": Change(added=0.5)},
        "deliveries",
        team_size=3,
    ),
    Candidate(
        "navigation_time",
        "time to goal: 0.6 of the speed, 0.4 of the turn rate, 6 times the lag, 150 ms more delay",
        "navigation",
        {
            "dynamics.speed_scale": Change(0.6),
            "dynamics.turn_scale": Change(0.4),
            _LAG: Change(6.0),
            "dynamics.command_delay": Change(added=0.15),
        },
        TIME,
        team_size=3,
    ),
    Candidate(
        "drone_gates_thrust",
        "drones through gates, tier attitude: 3 times the lag of the thrust, a third of the tilt's frequency",
        "gates",
        {"attitude.thrust_lag": Change(3.0), "attitude.tilt_frequency": Change(1 / 3)},
        "gates",
        robot="crazyflie_2x",
        options={"physics": "attitude"},
        needs_accelerator=True,
    ),
    Candidate(
        "push_box_friction",
        "two robots push a box on a floor with 0.3 of the friction, tier mjx",
        "push_box",
        {"contact.wheel_friction": Change(0.3)},
        TIME,
        options={"physics": "mjx", "form": "planar"},
        needs_accelerator=True,
    ),
)
