"""Parameters that all robots share, that each has for itself, or that those of a role share."""

from collections.abc import Mapping
from typing import Any, get_args

import jax
import jax.numpy as jnp
import optax

from testudo_hardware.errors import TestudoError
from testudo_policies.train_config import Sharing, TrainConfig
from testudo_sim.scenarios.roles import Roles


def parameter_groups(config: TrainConfig, scenario: Any) -> tuple[int, ...]:
    """Return which parameters each robot has, see `Agent.groups`.

    Raises:
        TestudoError: by roles in a scenario that declares none.
    """
    if config.sharing == "shared":
        return ()
    if config.sharing == "none":
        return tuple(range(config.team_size))
    names, order = _names(config, scenario), group_names(config, scenario)
    return tuple(order.index(name) for name in names)


def group_names(config: TrainConfig, scenario: Any) -> tuple[str, ...]:
    """Return the names of the roles of a team, in the order of their parameters.

    Raises:
        TestudoError: the scenario declares none.
    """
    return tuple(dict.fromkeys(_names(config, scenario)))


def _names(config: TrainConfig, scenario: Any) -> list[str]:
    roles: Roles | None = getattr(scenario, "roles", None)
    if roles is None:
        raise TestudoError(f"--sharing role: scenario {config.scenario!r} declares no roles; expected shared or none")
    return [role.name for role in roles.of_team(config.team_size, config.scenario)]


def check_sharing(config: TrainConfig) -> None:
    """Check the options about the parameters of robots.

    Raises:
        TestudoError: naming the option that does not go with another one.
    """
    if config.sharing not in get_args(Sharing):
        raise TestudoError(f"--sharing: found {config.sharing!r}, expected one of {', '.join(get_args(Sharing))}")
    used = {
        "--sharing": config.sharing != "shared",
        "--shared-experience": config.shared_experience,
        "--joint-ratio": config.joint_ratio,
        "--symmetry": config.symmetry,
        "--drop-out": config.drop_out > 0,
        "--critic-memory": config.critic_memory > 0,
        "--self-play": config.self_play > 0,
        "--against": bool(config.against),
        "--teacher": bool(config.teacher),
    }
    for option in (option for option, found in used.items() if found):
        if config.trainer != "testudo":
            raise TestudoError(f"{option}: found --trainer {config.trainer}, expected testudo")
        for name, values, expected in _NEEDS.get(option, ()):
            found = getattr(config, name)
            if found not in values:
                raise TestudoError(f"{option}: found --{name.replace('_', '-')} {found}, expected {expected}")
    if whole_worlds(config) and config.worlds % config.minibatches:
        raise TestudoError(f"--minibatches: {config.minibatches} does not divide {config.worlds} worlds")


_PPO = ("algorithm", ("mappo", "ippo"), "mappo or ippo")
_NEEDS: Mapping[str, tuple[tuple[str, tuple[Any, ...], str], ...]] = {
    "--shared-experience": (
        ("algorithm", ("ippo",), "ippo"),
        ("sharing", ("none",), "none"),
        ("memory", (0,), "0"),
        ("joint_ratio", (False,), "none"),
    ),
    "--joint-ratio": (_PPO,),
    "--symmetry": (_PPO, ("memory", (0,), "0"), ("message", (0,), "0"), ("critic_memory", (0,), "0")),
    "--critic-memory": (("algorithm", ("mappo",), "mappo"), ("sharing", ("shared",), "shared")),
    "--self-play": (_PPO, ("sharing", ("role",), "role"), ("against", ("",), "none"), ("role", ("",), "none")),
    "--against": (_PPO, ("sharing", ("role",), "role")),
    "--teacher": (
        _PPO,
        ("shared_experience", (False,), "none"),
        ("symmetry", (False,), "none"),
        ("self_play", (0,), "0"),
        ("against", ("",), "none"),
    ),
}
"""What an option needs of others: their values, and these in words."""


def whole_worlds(config: TrainConfig) -> bool:
    """Return whether the robots of a world must stay together in a minibatch."""
    return config.sharing != "shared" or config.joint_ratio


def for_each_group(optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return an optimiser of parameters of groups (G, ...), in which each group has its own state."""
    return optax.GradientTransformation(jax.vmap(optimiser.init), jax.vmap(optimiser.update))  # type: ignore[arg-type]


def changed_only(moving: jax.Array, groups: tuple[int, ...], new: Any, old: Any) -> Any:
    """Return ``new`` for the groups (G, ...) of the robots (N,) that move, and ``old`` for all others."""
    moved = jnp.zeros(max(groups) + 1, bool).at[jnp.asarray(groups)].max(moving)
    return jax.tree.map(lambda a, b: jnp.where(moved.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
