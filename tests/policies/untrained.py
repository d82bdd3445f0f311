"""A policy that was never trained and is not run: for tests of what surrounds it."""

from testudo_policies.evaluation.policy_under_test import PolicyUnderTest
from testudo_policies.learning.builder import build


def untrained(config):
    """Return what an evaluation knows of a policy with this configuration."""
    parts = build(config)
    return PolicyUnderTest(
        lambda signals, hidden: (signals, hidden), config.memory, config.scenario, parts.spec, parts.shield,
        config.team_size, parts.obstacles, map=config.map, task_messages=config.task_messages,
    )  # fmt: skip
