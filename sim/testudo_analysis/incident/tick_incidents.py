"""What the control loops' own records tell: stops by code, guard brakes, peers that were not heard, late ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.time_spans import spans
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.guard.command_guard import SENTENCES
from testudo_deploy.supervision.modes import WATCHDOGS, Mode
from testudo_runs.alignment import TeamRecording
from testudo_runs.run_reader import ticks_in_order

_JOIN_S = 1.0
_MODES = {str(mode) for mode in Mode}
_ORDERED = {"", "idle", "armed", "disarmed", "take_off", "hold", "land"}
"""Roots of a stop that an operator asked for."""


def find_in_ticks(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return what the ticks of a run of ours tell; nothing of another run."""
    if recording.run is None:
        return []
    found = []
    for name in recording.names:
        ticks = ticks_in_order(recording.run.ticks[name]) if recording.run.ticks[name] else ()
        if len(ticks) > 1:
            stamp_s = np.array([tick.stamp_s for tick in ticks]) - recording.start_s
            found += find_stops(name, ticks, stamp_s)
            found += find_stale_peers(name, ticks, stamp_s, bounds)
            found += find_late(name, ticks, stamp_s, recording.spec.control_period_s, bounds)
    return found


def root_code(reason: str, before: str = "") -> str:
    """Return the code that a reason goes back to: of what the supervisor holds for; ``before`` if it says nothing."""
    parts = [part.strip() for part in reason.split(":")]
    while parts and parts[0] in _MODES:
        parts = parts[1:]
    if parts and parts[0] in WATCHDOGS:
        return parts[0]
    mode = reason.split(":", maxsplit=1)[0].strip()
    return before if mode == "holding" else (parts[0] if parts else mode)


def driven(ticks: Sequence[TickRecord]) -> slice:
    """Return the ticks from the first to the last that sent a command of the policy; none if there is none."""
    index = [k for k, tick in enumerate(ticks) if not tick.reason]
    return slice(index[0], index[-1] + 1) if index else slice(0, 0)


def find_stops(name: str, ticks: Sequence[TickRecord], stamp_s: np.ndarray) -> list[Incident]:
    """Return times in which the loop braked by itself after it had once driven; one that never drove is one stop."""
    part = driven(ticks)
    if part.stop == 0:
        code = Counter(root_code(tick.reason) for tick in ticks).most_common(1)[0][0]
        if code in _ORDERED:
            return []
        lasted = float(stamp_s[-1] - stamp_s[0])
        return [
            Incident(
                IncidentKind.STOP,
                (name,),
                float(stamp_s[0]),
                float(stamp_s[-1]),
                float(stamp_s[0]),
                lasted,
                0.0,
                "s",
                f"{name} never drove: {code}",
                code=code,
            )
        ]
    braked = np.array([bool(tick.reason) for tick in ticks])
    braked[: part.start] = False
    found = []
    for begin, end in spans(braked, stamp_s, _JOIN_S / 5):
        codes: list[str] = []
        for tick in ticks[begin : end + 1]:
            if tick.reason:
                codes.append(root_code(tick.reason, codes[-1] if codes else ""))
        own = [code for code in codes if code not in _ORDERED]
        if not own:
            continue
        code = Counter(own).most_common(1)[0][0]
        before = f", after {own[0]}" if own[0] != code else ""
        guard = code == "guard_brakes"
        lasted = float(stamp_s[end] - stamp_s[begin])
        until = "to the end of the run" if end == len(ticks) - 1 else f"for {lasted:.2f} s"
        found.append(
            Incident(
                IncidentKind.GUARD_BRAKE if guard else IncidentKind.STOP,
                (name,),
                float(stamp_s[begin]),
                float(stamp_s[end]),
                float(stamp_s[begin]),
                lasted,
                0.0,
                "s",
                f"{name} braked {until}: {_said(ticks[begin : end + 1], code)}{before}",
                code=code,
            )
        )
    return found


def _said(ticks: Sequence[TickRecord], code: str) -> str:
    """Return what the record says of a code, with its details."""
    reason = next((tick.reason for tick in ticks if code in tick.reason), code)
    details = reason.split(code, 1)[-1].lstrip(": ").strip()
    if code == "guard_brakes" and details in SENTENCES:
        return f"the guard: {SENTENCES[details]}"
    known = WATCHDOGS[code].sentence if code in WATCHDOGS else code
    return f"{known} ({code}{': ' + details if details else ''})"


def find_stale_peers(
    name: str, ticks: Sequence[TickRecord], stamp_s: np.ndarray, bounds: IncidentThresholds
) -> list[Incident]:
    """Return times in which the robot's knowledge of a peer was old, while it drove."""
    part, found = driven(ticks), []
    peers = {peer for tick in ticks for peer in tick.neighbour_names}
    for peer in sorted(peers):
        age = np.array([_age(tick, peer) for tick in ticks])
        holds = age > bounds.stale_s
        holds[: part.start], holds[part.stop :] = False, False
        for begin, end in spans(holds, stamp_s, _JOIN_S):
            worst = begin + int(np.nanargmax(np.where(np.isfinite(age[begin : end + 1]), age[begin : end + 1], -1)))
            found.append(
                Incident(
                    IncidentKind.STALE_PEER,
                    (name, peer),
                    float(stamp_s[begin]),
                    float(stamp_s[end]),
                    float(stamp_s[worst]),
                    float(age[worst]),
                    bounds.stale_s,
                    "s",
                    f"{name} drove with knowledge of {peer} that was up to {age[worst]:.2f} s old",
                )
            )
    return found


def _age(tick: TickRecord, peer: str) -> float:
    if peer not in tick.neighbour_names:
        return np.nan
    slot = tick.neighbour_names.index(peer)
    known = slot < len(tick.neighbour_age_s) and not tick.neighbour_untrusted[slot]
    return tick.neighbour_age_s[slot] if known else np.nan


def find_late(
    name: str, ticks: Sequence[TickRecord], stamp_s: np.ndarray, period_s: float, bounds: IncidentThresholds
) -> list[Incident]:
    """Return ticks that began late, and times in which ticks are missing, while the robot drove."""
    part = driven(ticks)
    late = np.array([tick.late_s for tick in ticks])
    missing = np.diff(stamp_s, prepend=stamp_s[0]) - period_s
    late, bound = np.maximum(late, missing), bounds.late_share * period_s
    holds = late > bound
    holds[: part.start + 1], holds[part.stop :] = False, False
    found = []
    for begin, end in spans(holds, stamp_s, _JOIN_S):
        worst = begin + int(np.argmax(late[begin : end + 1]))
        count = int(holds[begin : end + 1].sum())
        found.append(
            Incident(
                IncidentKind.LATE_TICK,
                (name,),
                float(stamp_s[max(begin - 1, 0)]),
                float(stamp_s[end]),
                float(stamp_s[worst]),
                float(late[worst]),
                bound,
                "s",
                f"{count} tick{'s' if count > 1 else ''} of {name} began up to {1e3 * late[worst]:.0f} ms late",
            )
        )
    return found
