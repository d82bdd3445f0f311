"""The state of a robot when the command of this tick begins to act, predicted from its pose and its past commands.

A pose of age A and a command delay mean that the commands of the last A + delay do not show in the pose yet. The motion
model rolls them out. Simulation and robot call the same functions.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import LagResponse, MotionModel, MotionState
from testudo_hardware.spec import RobotSpec


def pending_time_s(spec: RobotSpec, age_s: Array, slots: int) -> Array:
    """Return for how long each past command is still to act (slots, ...) [s], newest first.

    Valid for ticks at the control period; ``age_s`` (...) is the age of the pose.
    """
    xp = array_namespace(age_s)
    total = age_s + spec.command_delay_s
    return xp.stack([xp.clip(total - k * spec.control_period_s, 0.0, spec.control_period_s) for k in range(slots)])


def predict_state(model: MotionModel, measured: MotionState, pending: Array, responses: LagResponse) -> MotionState:
    """Return the state after the pending commands.

    ``measured`` is the aged state (D, ...), ``pending`` the effective commands (slots, D, ...), newest first, and
    ``responses`` the response of the lag to each of them, arrays (slots, ...).
    """
    state = measured
    for k in reversed(range(pending.shape[0])):
        response = LagResponse(responses.duration_s[k, ...], responses.gain[k, ...], responses.mean_share[k, ...])
        state = model.step(state, pending[k, ...], response)
    return state


def estimate_state(
    model: MotionModel, measured: MotionState, pending: Sequence[np.ndarray], pending_s: tuple[float, ...]
) -> MotionState:
    """Return the state of one robot after pending effective commands, newest first, each for its own time [s]."""
    if not pending:
        return measured
    responses = LagResponse.create(np.array(pending_s), model.spec.velocity_lag_s)
    return predict_state(model, measured, np.stack(pending), responses)


_KEEP = 32  # number of commands kept; more than any pose age plus delay spans


class PendingCommands:
    """The commands that were sent and do not act yet, on the robot's steady clock; ticks may be irregular."""

    def __init__(self, delay_s: float, dead_man_s: float) -> None:
        self._delay_s, self._dead_man_s = delay_s, dead_man_s
        self._sent: deque[tuple[float, np.ndarray]] = deque(maxlen=_KEEP)

    def push(self, now_s: float, effective: np.ndarray) -> None:
        """Add an effective command (D,) that is sent now."""
        self._sent.appendleft((now_s, np.asarray(effective, float)))

    def newer_than(self, time_s: float) -> list[tuple[float, np.ndarray]]:
        """Return the commands that were sent after a time, and when, oldest first."""
        found: list[tuple[float, np.ndarray]] = []
        for sent in self._sent:
            if sent[0] <= time_s:
                break
            found.append(sent)
        return found[::-1]

    @property
    def newest_s(self) -> float:
        """Return when the newest command was sent."""
        return self._sent[0][0] if self._sent else -math.inf

    def clear(self) -> None:
        """Forget all commands, after a change of the clock."""
        self._sent.clear()

    def since(self, stamp_s: float, now_s: float) -> tuple[list[np.ndarray], tuple[float, ...]]:
        """Return what acts between ``stamp_s`` and ``now_s + delay``, newest first, with durations [s].

        A command acts from its sending plus the delay until the next one does, or until the driver's
        dead-man time is over and zero acts. Before the first command zero acts.
        """
        commands: list[np.ndarray] = []
        durations: list[float] = []
        end = now_s + self._delay_s
        for sent_s, command in self._sent:
            if end <= stamp_s:
                break
            begin = sent_s + self._delay_s
            stale = begin + self._dead_man_s
            if (time_s := end - max(stale, stamp_s)) > 0:
                commands.append(0 * command)
                durations.append(time_s)
            if (time_s := min(end, stale) - max(begin, stamp_s)) > 0:
                commands.append(command)
                durations.append(time_s)
            end = min(end, begin)
        if self._sent and end > stamp_s:
            commands.append(0 * self._sent[0][1])
            durations.append(end - stamp_s)
        return commands, tuple(durations)

    def may_act(
        self, begin_s: float, end_s: float, delays_s: tuple[float, float], zero: np.ndarray
    ) -> list[tuple[float, list[np.ndarray]]]:
        """Return what may have acted between two times, if the delay is between the two given [s].

        The time is cut where a command begins or ends to be possible: for each piece its share of the time, and
        the commands of which one acted; ``zero`` (D,) before the first and after the dead-man time.
        """
        spans: list[tuple[float, float, np.ndarray]] = []
        until = math.inf
        for sent_s, command in self._sent:
            stale = sent_s + self._dead_man_s
            spans.append((sent_s + delays_s[0], min(until, stale) + delays_s[1], command))
            if stale < until:
                spans.append((stale + delays_s[0], until + delays_s[1], zero))
            until = min(until, sent_s)
            if until + delays_s[1] < begin_s:
                break
        else:
            spans.append((-math.inf, until + delays_s[1], zero))
        cuts = sorted({begin_s, end_s, *(time_s for span in spans for time_s in span[:2] if begin_s < time_s < end_s)})
        pieces: list[tuple[float, list[np.ndarray]]] = []
        for low, high in pairwise(cuts):
            commands = [command for first, last, command in spans if first < high and last > low]
            pieces.append(((high - low) / (end_s - begin_s), commands or [zero]))
        return pieces
