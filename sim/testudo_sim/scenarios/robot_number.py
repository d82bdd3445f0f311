"""The number of a robot in its team as a signal of any task, for policies with parameters of each robot."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Contract, Signal
from testudo_hardware.errors import TestudoError
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Scenario, StartState

ROBOT_NUMBER = "robot_number"


def has_numbers(contract: Contract) -> bool:
    """Return whether robots have parameters of their own, which they find by their number."""
    return any(signal.name == ROBOT_NUMBER for signal in contract.signals)


def numbered(scenario: Scenario, team_size: int) -> Scenario:
    """Return the same task for one team size, with the signal `ROBOT_NUMBER`: 0 for the first robot, 1 for the second.

    Its `start` refuses other team sizes, as a policy has parameters for these robots only.
    """
    kept = {field.name: getattr(scenario, field.name) for field in fields(cast(Any, scenario))}
    made: Scenario = _numbered_kind(type(scenario), team_size)(**kept)
    return made


@functools.cache
def _numbered_kind(kind: Any, size: int) -> Any:
    """Return a scenario's class with the signal; cached, as equal scenarios have one class."""

    @dataclass(frozen=True, kw_only=True)
    class Numbered(kind):  # type: ignore[misc] # the base is known at run time only
        @property
        def task_signals(self) -> tuple[Signal, ...]:
            return (*super().task_signals, Signal(ROBOT_NUMBER, (1,), "", "", None))

        def start(self, key: jax.Array, team_size: int) -> StartState:
            if team_size != size:
                raise TestudoError(
                    f"{self.name}: found a team of {team_size}, expected {size}: each of these robots has its own "
                    "parameters in the policy; train with --sharing shared for other teams"
                )
            begin: StartState = super().start(key, team_size)
            return begin

        def signals(self, task: Any, scene: Scene) -> Mapping[str, jax.Array]:
            shape = scene.robots.yaw.shape
            number = jnp.broadcast_to(jnp.arange(shape[0], dtype=jnp.float32)[:, None], shape)
            return {**super().signals(task, scene), ROBOT_NUMBER: number[None]}

    return Numbered
