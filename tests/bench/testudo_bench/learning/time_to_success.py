"""How long training takes until it succeeds, compilation apart."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass

import jax

from testudo_policies.learning.builder import build
from testudo_policies.train_config import TrainConfig

_SUCCESS = 0.97
"""An untrained policy, which drives straight to its goal, has about 0.93 in these starts, half of them crowded."""
_CPU_WORLDS, _WORLDS = 256, 2048


@dataclass(frozen=True)
class Learning:
    """One training of `navigation`, stopped once its episodes succeed."""

    team_size: int
    worlds: int
    success: float
    """Share of the training's own episodes, over the updates of two time limits, at which it counts as solved."""
    reached: bool
    seconds: float
    """Until then, or until there was no time left; without compilation."""
    updates: int
    decisions: int
    decisions_per_s: float
    compile_s: float


def learn_until_success(robot: str, end: float) -> Learning:
    """Train four robots until they succeed, or until ``end`` on the clock `time.perf_counter`."""
    worlds = _CPU_WORLDS if jax.default_backend() == "cpu" else _WORLDS
    config = TrainConfig(robot=robot, worlds=worlds, decisions=worlds * 32 * 400)
    workshop = build(config)
    with jax.default_matmul_precision(config.precision):
        begin = time.perf_counter()
        state = workshop.ppo.start(jax.random.key(0))
        update = jax.jit(workshop.ppo.update).lower(state).compile()
        compile_s = time.perf_counter() - begin
        # episodes that fail take the whole time limit: a shorter window would see the successes alone
        window = math.ceil(2 * workshop.environment.horizon / config.rollout)
        begin, recent = time.perf_counter(), deque(maxlen=window)
        reached, updates = False, 0
        while not reached and time.perf_counter() < end and updates < config.updates:
            state, metrics = update(state)
            episodes = float(metrics["train/episodes"])
            recent.append((float(metrics["train/success"]) * episodes, episodes))
            updates += 1
            good, ended = (sum(column) for column in zip(*recent, strict=True))
            reached = len(recent) == window and good >= _SUCCESS * ended > 0
        seconds = time.perf_counter() - begin
    decisions = updates * worlds * config.rollout
    return Learning(
        config.team_size,
        worlds,
        _SUCCESS,
        reached,
        seconds,
        updates,
        decisions,
        decisions / max(seconds, 1e-9),
        compile_s,
    )
