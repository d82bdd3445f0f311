"""Cross table: every policy of one role against every policy of the other, Elo ratings, and who exploits whom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import BATCH, compiled_programs, run_batch
from testudo_policies.evaluation.policy_under_test import PolicyUnderTest
from testudo_policies.evaluation.side_by_side import side_by_side
from testudo_policies.learning.opponents import ELO_SCALE, FIRST_RATING, scores

_ALIKE = ("scenario", "team_size", "spec", "map", "obstacles", "yaw_rate_limit", "tracking", "message_size")
_SIDES = 2


@dataclass(frozen=True)
class Meeting:
    """Episodes of a policy of the first role against one of the second."""

    episodes: int
    won: float  # share of the episodes that the first role has won; equal returns are a half
    returns: tuple[float, float]  # mean return of the robots of each role
    errors: tuple[float, float]  # their standard errors


@dataclass(frozen=True)
class CrossTable:
    """All meetings, by the name of the policy of the first role and that of the second."""

    scenario: str
    roles: tuple[str, str]
    meetings: Mapping[tuple[str, str], Meeting]

    @property
    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the policies of each role."""
        first, second = (tuple(dict.fromkeys(pair[side] for pair in self.meetings)) for side in range(_SIDES))
        return first, second

    @property
    def ratings(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the Elo rating of each policy as the first role and as the second, see `fitted_ratings`."""
        first, second = self.sides
        won = np.array([[self.meetings[a, b].won for b in second] for a in first])
        episodes = np.array([[self.meetings[a, b].episodes for b in second] for a in first])
        rows, columns = fitted_ratings(won, episodes)
        return dict(zip(first, rows, strict=True)), dict(zip(second, columns, strict=True))

    def exploited(self, name: str, side: int) -> tuple[float, str] | None:
        """Return how much more the best opponent in the table earns against a policy than its own other side does.

        ``side`` is 0 or 1: the role in which the policy is exploited. It is a lower bound of the gain of a best
        response, and close to it where one was trained. None where the policy does not have both roles.
        """
        if not all(name in names for names in self.sides):
            return None

        def earned(opponent: str) -> float:
            pair = (name, opponent) if side == 0 else (opponent, name)
            return self.meetings[pair].returns[1 - side]

        best = max(self.sides[1 - side], key=earned)
        return earned(best) - earned(name), best

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "scenario": self.scenario,
            "roles": list(self.roles),
            "meetings": [
                {
                    self.roles[0]: pair[0],
                    self.roles[1]: pair[1],
                    "episodes": met.episodes,
                    "won": met.won,
                    "returns": list(met.returns),
                    "standard_errors": list(met.errors),
                }
                for pair, met in self.meetings.items()
            ],
            "elo": dict(zip(self.roles, self.ratings, strict=True)),
            "exploited": [
                {"policy": name, "role": role, "gain": found[0], "by": found[1]}
                for side, role in enumerate(self.roles)
                for name in self.sides[side]
                if (found := self.exploited(name, side)) is not None
            ],
        }


def fitted_ratings(won: np.ndarray, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Elo ratings of rows (A,) and columns (B,) that make their shares of wins (A, B) likeliest.

    A row that is r points above a column is expected to win 1 / (1 + 10^(-r / 400)) (Elo, 1978; the likelihood is that
    of Bradley and Terry, 1952). Each pair has one further game that is drawn, without which a rating that never loses
    were infinite. The mean is 1000; only differences count.
    """
    games = episodes + 1.0
    share = (won * episodes + 0.5) / games
    rows = won.shape[0]

    def loss(ratings: np.ndarray) -> tuple[float, np.ndarray]:
        apart = ratings[:rows, None] - ratings[None, rows:]
        total = float(np.sum(games * (np.logaddexp(0, apart) - share * apart)))
        slope = games * (1 / (1 + np.exp(-apart)) - share)
        return total, np.concatenate([slope.sum(axis=1), -slope.sum(axis=0)])

    found = minimize(loss, np.zeros(sum(won.shape)), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    points = FIRST_RATING + ELO_SCALE / np.log(10) * (found - found.mean())
    return points[:rows], points[rows:]


def cross_table(
    policies: Mapping[str, PolicyUnderTest],
    learnt: Mapping[str, str],
    episodes: int,
    seed: int,
    on_meeting: Callable[[int], None] | None = None,
) -> CrossTable:
    """Run every policy of the first role against every one of the second in the same held-out episodes.

    Args:
        policies: by name; of one scenario and team.
        learnt: by name, the only role that a best response has learnt; it does not play the other.
        episodes: number of episodes of each meeting.
        seed: seed of the first episode.
        on_meeting: called with the number of finished meetings.

    Raises:
        TestudoError: the policies do not fit together, or their scenario has not two roles.
    """
    _check_alike(policies)
    base = next((one for one in policies.values() if one.numbered), next(iter(policies.values())))
    environment = base.environment(base.team_size)
    declared = getattr(environment.scenario, "roles", None)
    team = [] if declared is None else [role.name for role in declared.of_team(base.team_size, base.scenario)]
    roles = tuple(dict.fromkeys(team))
    if len(roles) != _SIDES:
        raise TestudoError(f"cross: scenario {base.scenario!r} has {len(roles)} roles here, expected two")
    side_of = np.array([roles.index(name) for name in team])
    first, second = ([n for n in policies if learnt.get(n, role) == role] for role in roles)
    if not first or not second:
        raise TestudoError(f"cross: found no policy that plays {roles[1] if first else roles[0]}")
    programs, meetings = compiled_programs(environment), dict[tuple[str, str], Meeting]()
    for pair in ((a, b) for a in first for b in second):
        policy, memory = side_by_side([policies[name] for name in pair], side_of)
        found = [
            run_batch(environment, programs, policy, memory, seed + done, min(BATCH, episodes - done)).robot_returns
            for done in range(0, episodes, BATCH)
        ]
        meetings[pair] = _meeting(np.concatenate(found, axis=1), side_of)
        if on_meeting:
            on_meeting(len(meetings))
    return CrossTable(base.scenario, (roles[0], roles[1]), meetings)


def _meeting(robot_returns: np.ndarray, side_of: np.ndarray) -> Meeting:
    """Return the figures of episodes from the returns (N, E) of the robots."""
    returns = np.stack([robot_returns[side_of == side].mean(axis=0) for side in range(_SIDES)])
    errors = returns.std(axis=1) / np.sqrt(returns.shape[1])
    mean = returns.mean(axis=1)
    won = float(np.mean(scores(jnp.asarray(returns))[0]))
    return Meeting(returns.shape[1], won, (float(mean[0]), float(mean[1])), (float(errors[0]), float(errors[1])))


def _check_alike(policies: Mapping[str, PolicyUnderTest]) -> None:
    name, base = next(iter(policies.items()))
    for other, tested in policies.items():
        if tested.policy is None:
            raise TestudoError(f"cross: found the scenario {other}, expected a policy file or a training run")
        for part in _ALIKE:
            if getattr(tested, part) != getattr(base, part):
                raise TestudoError(f"cross: {name} and {other} differ in {part.replace('_', ' ')}; expected one game")
