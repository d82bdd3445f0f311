"""The array bodies of one robot's tick: in NumPy, and the same bodies as machine code.

There is one source: `CompiledTickBodies` runs the bodies of `TickBodies` once on arrays that record what is computed,
and compiles that (docs/shield.md, "Compiled bodies"). Before it is used, drawn inputs go through both. A landing, a
shield with wider margins, tables of another form and numbers that are not finite stay in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from testudo_deploy.compiling.c_source import c_file
from testudo_deploy.compiling.compiled_body import CompiledBody, leaves, trace
from testudo_deploy.compiling.shared_library import NotCompiledError, shared_library
from testudo_deploy.control.deadlock_resolver import Rule
from testudo_deploy.control.peer_tracker import PeerTracker
from testudo_deploy.control.state_prediction import estimate_state, predict_state
from testudo_deploy.control.tick_draw import TickDraw
from testudo_deploy.shield.reservations import (
    PeerReservations,
    ReservedSpace,
    ShieldInputs,
    conflicting_peers,
    conflicts,
)
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import ShieldResult
from testudo_hardware.arrays import Array
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint

_CLOSER_M = 0.001  # segments this much closer than the clearance are not a matter of rounding
_PENDING = 16  # pending commands of a compiled prediction; more go to NumPy
_CHECKS = 30  # drawn inputs on which a compiled body is compared with NumPy before it is used
AGREEMENT = 1e-9
"""Largest difference of a compiled body from NumPy, relative to values above one. Additions, products and roots are
the same to the last bit; NumPy's own exponentials and arc tangents may differ there from the compiler's."""


class TickBodies:
    """The bodies of one robot in NumPy."""

    def __init__(self, shield: Shield, rule: Rule) -> None:
        """Take the robot's shield and its deadlock rule."""
        self.shield, self.rule, self._model = shield, rule, shield.model

    def locate(
        self, measured: MotionState, pending: Sequence[np.ndarray], pending_s: tuple[float, ...]
    ) -> tuple[MotionState, StoppingPoint]:
        """Return state and stopping point after pending effective commands, newest first; see `estimate_state`."""
        estimate = estimate_state(self._model, measured, pending, pending_s)
        return estimate, self._model.stopping_point(estimate)

    def reserved_twice(self, own: ReservedSpace, peers: PeerReservations) -> np.ndarray:
        """Return which peers (K,) reserve what the robot has reserved, rounding aside."""
        space = self.shield.space
        hits, _ = conflicts(own.owned_world[:, :, None], peers, space.clearance_m - _CLOSER_M, space.height_ratio)
        return hits[:, 0]

    def conflicting(self, own: ReservedSpace, peers: PeerReservations) -> np.ndarray:
        """Return which peers (K,) reserve or request a segment too close to the reserved one."""
        return conflicting_peers(own, peers, self.shield.space)

    def check(
        self, shield: Shield, inputs: ShieldInputs, own: ReservedSpace, nominal_world: Array, number: Array
    ) -> tuple[ShieldResult, ReservedSpace]:
        """Return the command that a shield lets pass; see `Shield.step`."""
        return shield.step(inputs, own, nominal_world, number)


class CompiledTickBodies(TickBodies):
    """The same bodies as machine code, for one number of peers."""

    def __init__(self, bodies: TickBodies, peers: int, *, untrusted: bool = False, message_size: int = 0) -> None:
        """Compile the bodies, or take them from the cache, and check them.

        ``untrusted``: some peers keep to no contract; ``message_size`` is that of the learned messages.

        Raises:
            NotCompiledError: there is no machine code, or it does not agree with NumPy.
        """
        super().__init__(bodies.shield, bodies.rule)
        shield = bodies.shield
        self._draw = TickDraw(shield, peers, untrusted, message_size, _PENDING)
        written: dict[str, Callable[..., Any]] = {
            "locate": self._located,
            "reserved_twice": bodies.reserved_twice,
            "rule": bodies.rule,
            "check": shield.step,
        }
        examples = self._draw.arguments(np.random.default_rng(0))
        try:
            traced = {name: trace(name, body, examples[name]) for name, body in written.items()}
        except Exception as error:  # such as a motion model of others that decides by values
            raise NotCompiledError(f"they cannot be compiled: {type(error).__name__}: {error}") from error
        library = shared_library(c_file([one.source for one in traced.values()]))
        self._bodies = {name: CompiledBody(one, library) for name, one in traced.items()}
        self._locate, self._check = self._bodies["locate"], self._bodies["check"]
        self._reserved_twice, self.rule = self._bodies["reserved_twice"], self._bodies["rule"]
        self._zero = np.zeros((_PENDING, shield.model.spec.dimension))
        difference, where = self.difference(_CHECKS, seed=1)
        if not difference <= AGREEMENT:
            raise NotCompiledError(f"{where} differs from NumPy by {difference:.1e}, expected at most {AGREEMENT:.0e}")

    def locate(
        self, measured: MotionState, pending: Sequence[np.ndarray], pending_s: tuple[float, ...]
    ) -> tuple[MotionState, StoppingPoint]:
        """See `TickBodies.locate`; a command that acts for no time changes nothing."""
        count = len(pending)
        if not 0 < count <= _PENDING:
            return super().locate(measured, pending, pending_s)
        commands = self._zero.copy()
        commands[:count] = pending
        # NumPy's own exponential, so that not even the last bit depends on the compiler
        times = np.array(pending_s + (0.0,) * (_PENDING - count))
        return self._locate(measured, commands, LagResponse.create(times, self._model.spec.velocity_lag_s))

    def reserved_twice(self, own: ReservedSpace, peers: PeerReservations) -> np.ndarray:
        """See `TickBodies.reserved_twice`."""
        return self._reserved_twice(own, peers)

    def _located(
        self, measured: MotionState, pending: np.ndarray, responses: LagResponse
    ) -> tuple[MotionState, StoppingPoint]:
        estimate = predict_state(self._model, measured, pending, responses)
        return estimate, self._model.stopping_point(estimate)

    def check(
        self, shield: Shield, inputs: ShieldInputs, own: ReservedSpace, nominal_world: Array, number: Array
    ) -> tuple[ShieldResult, ReservedSpace]:
        """See `TickBodies.check`."""
        if shield is not self.shield:
            return shield.step(inputs, own, nominal_world, number)
        return self._check(inputs, own, nominal_world, number)

    def difference(self, count: int, seed: int) -> tuple[float, str]:
        """Return the largest difference from NumPy on drawn inputs, and the body that has it.

        Relative to values above one; infinite if one has a number where the other has none.
        """
        worst, where = 0.0, ""
        for arguments in self._draw.many(count, seed):
            for name, body in self._bodies.items():
                with np.errstate(all="ignore"):  # some of the numbers are too large for squares
                    away = _difference(body(*arguments[name]), body.body(*arguments[name]))
                if not away <= worst:
                    worst, where = away, name
        return worst, where


def compiled_bodies(bodies: TickBodies, peers: PeerTracker) -> CompiledTickBodies:
    """Return the bodies as machine code, for a robot with these peers.

    Raises:
        NotCompiledError: there is no machine code, or it does not agree with NumPy.
    """
    untrusted = bool(peers.untrusted)
    return CompiledTickBodies(bodies, len(peers.peers), untrusted=untrusted, message_size=peers.message_size)


def _difference(found: Any, expected: Any) -> float:
    """Return the largest difference of two results, relative to values above one."""
    worst = 0.0
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        first, second = np.asarray(one, float), np.asarray(other, float)
        with np.errstate(all="ignore"):
            away = np.abs(first - second) / np.maximum(1.0, np.abs(second))
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        away = np.where(same, 0.0, np.where(np.isfinite(away), away, np.inf))
        worst = max(worst, float(np.max(away, initial=0.0)))
    return worst
