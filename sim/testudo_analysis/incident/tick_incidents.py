"""Incidents from the control loops' tick records: stops by code, guard brakes, stale peers, late ticks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds, largest, spans
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.guard.command_guard import SENTENCES
from testudo_deploy.supervision.modes import WATCHDOGS, Mode
from testudo_runs.alignment import TeamRecording
from testudo_runs.run_reader import ticks_in_order

_JOIN_S = 1.0
_MODES = {str(mode) for mode in Mode}
_ORDERED = {"", "idle", "armed", "disarmed", "take_off", "hold", "land"}
"""Root codes of a stop that an operator requested."""


def find_in_ticks(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return the incidents that the ticks of a Testudo run show; none for other runs."""
    if recording.run is None:
        return []
    found = []
    for name in recording.names:
        ticks = ticks_in_order(recording.run.ticks[name]) if recording.run.ticks[name] else ()
        if len(ticks) > 1:
            stamp_s = np.array([tick.stamp_s for tick in ticks]) - recording.start_s
            found += find_stops(name, ticks, stamp_s)
            found += find_stale_peers(name, ticks, stamp_s, bounds)
            # ticks that began late, and times with missing ticks, while the robot drove
            part = driven(ticks)
            missing = np.diff(stamp_s, prepend=stamp_s[0]) - recording.spec.control_period_s
            late = np.maximum([tick.late_s for tick in ticks], missing)
            bound = bounds.late_share * recording.spec.control_period_s
            holds = late > bound
            holds[: part.start + 1], holds[part.stop :] = False, False
            for begin, end in spans(holds, stamp_s, _JOIN_S):
                worst, count = largest(late, begin, end), int(holds[begin : end + 1].sum())
                what = f"{count} tick{'s' if count > 1 else ''} of {name} began up to {1e3 * late[worst]:.0f} ms late"
                span = max(begin - 1, 0), end, worst
                found.append(
                    Incident.over(IncidentKind.LATE_TICK, (name,), stamp_s, span, late[worst], bound, "s", what)
                )
    return found


def root_code(reason: str, before: str = "") -> str:
    """Return the root code of a reason: what the supervisor holds for; ``before`` if the reason has none."""
    parts = [part.strip() for part in reason.split(":")]
    while parts and parts[0] in _MODES:
        parts = parts[1:]
    if parts and parts[0] in WATCHDOGS:
        return parts[0]
    mode = reason.split(":", maxsplit=1)[0].strip()
    return before if mode == "holding" else (parts[0] if parts else mode)


def driven(ticks: Sequence[TickRecord]) -> slice:
    """Return the ticks from the first to the last that sent a command of the policy; empty without any."""
    index = [k for k, tick in enumerate(ticks) if not tick.reason]
    return slice(index[0], index[-1] + 1) if index else slice(0, 0)


def find_stops(name: str, ticks: Sequence[TickRecord], stamp_s: np.ndarray) -> list[Incident]:
    """Return times after the first drive in which the loop braked by itself; a robot that never drove is one stop."""
    part = driven(ticks)
    if part.stop == 0:
        code = Counter(root_code(tick.reason) for tick in ticks).most_common(1)[0][0]
        if code in _ORDERED:
            return []
        span, what = (0, len(ticks) - 1, 0), f"{name} never drove: {code}"
        never = Incident.over(IncidentKind.STOP, (name,), stamp_s, span, stamp_s[-1] - stamp_s[0], 0.0, "s", what)
        return [replace(never, code=code)]
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
        lasted = stamp_s[end] - stamp_s[begin]
        until = "to the end of the run" if end == len(ticks) - 1 else f"for {lasted:.2f} s"
        what = f"{name} braked {until}: {_reason_text(ticks[begin : end + 1], code)}{before}"
        kind = IncidentKind.GUARD_BRAKE if code == "guard_brakes" else IncidentKind.STOP
        stop = Incident.over(kind, (name,), stamp_s, (begin, end, begin), lasted, 0.0, "s", what)
        found.append(replace(stop, code=code))
    return found


def _reason_text(ticks: Sequence[TickRecord], code: str) -> str:
    """Return the sentence of a code with the recorded details."""
    reason = next((tick.reason for tick in ticks if code in tick.reason), code)
    details = reason.split(code, 1)[-1].lstrip(": ").strip()
    if code == "guard_brakes" and details in SENTENCES:
        return f"the guard: {SENTENCES[details]}"
    known = WATCHDOGS[code].sentence if code in WATCHDOGS else code
    return f"{known} ({code}{': ' + details if details else ''})"


def find_stale_peers(
    name: str, ticks: Sequence[TickRecord], stamp_s: np.ndarray, bounds: IncidentThresholds
) -> list[Incident]:
    """Return times in which the robot drove with an old state of a peer."""
    part, found = driven(ticks), []
    for peer in sorted({peer for tick in ticks for peer in tick.neighbour_names}):
        age = np.array([_age(tick, peer) for tick in ticks])
        holds = age > bounds.stale_s
        holds[: part.start], holds[part.stop :] = False, False
        for begin, end in spans(holds, stamp_s, _JOIN_S):
            worst = largest(np.where(np.isfinite(age), age, -1), begin, end)
            span, what = (begin, end, worst), f"{name} drove with a state of {peer} up to {age[worst]:.2f} s old"
            kind, robots, bound = IncidentKind.STALE_PEER, (name, peer), bounds.stale_s
            found.append(Incident.over(kind, robots, stamp_s, span, age[worst], bound, "s", what))
    return found


def _age(tick: TickRecord, peer: str) -> float:
    if peer not in tick.neighbour_names:
        return np.nan
    slot = tick.neighbour_names.index(peer)
    known = slot < len(tick.neighbour_age_s) and not tick.neighbour_untrusted[slot]
    return tick.neighbour_age_s[slot] if known else np.nan
