"""Two policies in one team: some robots drive by the one, the others by the other."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from testudo_sim.scenarios.robot_number import ROBOT_NUMBER
from testudo_sim.team.batch_policy import BatchPolicy


class Side(Protocol):
    """What is known of the policy of a side, see `PolicyUnderTest`."""

    @property
    def policy(self) -> BatchPolicy | None:
        """The policy, which reads the signals of all robots."""
        ...

    @property
    def memory(self) -> int:
        """Size of its memory."""
        ...

    @property
    def numbered(self) -> bool:
        """Whether it reads the robots' numbers."""
        ...


def side_by_side(sides: Sequence[Side], side_of: np.ndarray) -> tuple[BatchPolicy, int]:
    """Return the policy of a team in which robot i drives by ``sides[side_of[i]]``, and the size of its memory."""
    sizes = [one.memory for one in sides]

    def step(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        robots = hidden.shape[0]
        mine = np.tile(side_of, robots // len(side_of))[:, None]
        command, memories = jnp.zeros(()), []
        for side, (tested, own) in enumerate(zip(sides, np.split(hidden, np.cumsum(sizes)[:-1], axis=1), strict=True)):
            assert tested.policy is not None  # noqa: S101 -- a policy, and not by hand
            seen = signals if tested.numbered else {n: v for n, v in signals.items() if n != ROBOT_NUMBER}
            found, memory = tested.policy(seen, own)
            command = jnp.where(mine == side, jnp.asarray(found), command)
            memories.append(jnp.asarray(memory))
        return command, jnp.concatenate(memories, axis=1)

    return step, sum(sizes)
