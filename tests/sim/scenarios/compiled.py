"""Scenarios whose functions are programs: called one operation at a time, each of them would be a program."""

from functools import partial

import jax


class CompiledScenario:
    """A scenario with its functions of a decision compiled; all else is that of the scenario."""

    def __init__(self, scenario):
        self._scenario = scenario
        for name in ("advance", "signals", "nominal_world"):
            setattr(self, name, jax.jit(getattr(scenario, name)))

    def __getattr__(self, name):
        return getattr(self._scenario, name)


def starts_of_keys(scenario, team_size, keys):
    """Return the starts (..., E) of a team for keys (E,)."""
    return jax.jit(jax.vmap(partial(scenario.start, team_size=team_size), out_axes=-1))(keys)
