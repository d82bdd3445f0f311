"""The emergency stop of the station page: the same way as `testudo estop`, and what became of it in plain words.

The resident process is pressed at once, in the thread of the browser's request; the program of `testudo estop` follows
in a process of its own unless every guard has confirmed by then. So the stop does not depend on the rest of the page.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testudo_deploy.station.fleet_status import EstopReply, silence_sentence, unconfirmed_text
from testudo_nodes.common.process_priority import PRIORITIES
from testudo_nodes.station.quick_stop import StopOrder, press_residents

_PROGRAM = (sys.executable, "-P", "-m", "testudo_nodes.station.quick_stop", "estop")
_START_S = 15.0  # of a program on a machine that is busy
BY_HAND = "Stop the robots by hand."


def press_stop(order: StopOrder) -> dict[str, Any]:
    """Press the emergency stop, and return as JSON values which guards confirmed; never raises.

    ``order`` is that of the verb, with the fleet file, domain and reach; it waits `wait` seconds for confirmations.
    """
    _hurry()
    replies = None
    with contextlib.suppress(Exception):  # whatever it is, the program below presses, too
        replies = press_residents(order)
    if replies is not None:
        return stop_values(replies, order)
    status, written, told = _run_program(order, ())
    if status is None or written is None:
        return _values((), f"Nobody confirmed: {told or 'the program of `testudo estop` failed'}. {BY_HAND}")
    return stop_values((EstopReply(name, **found) for name, found in written["robots"].items()), order)


def release_stop(order: StopOrder) -> tuple[bool, str]:
    """Release the emergency stop as `testudo estop --release`; return whether that was done, and a sentence."""
    status, _, told = _run_program(order, ("--release",))
    if status == 0:
        return True, "the emergency stop is released; a stopped robot stays so until it is rearmed"
    return False, told or "the release was not answered: give it again"


def stop_values(replies: Iterable[EstopReply], order: StopOrder) -> dict[str, Any]:
    """Return the confirmations as JSON values, with a sentence that says whether all robots have stopped."""
    found = tuple(replies)
    if found and all(reply.stopped for reply in found):
        longest_s = max((reply.after_s for reply in found if reply.after_s is not None), default=None)
        after = "" if longest_s is None else f" within {1000 * longest_s:.0f} ms"
        return _values(found, f"All {len(found)} guards confirmed the stop{after}.")
    if all(reply.guard is None for reply in found):
        silence = silence_sentence(order.wait, order.domain or 0, local=order.local)
        return _values(found, f"Nobody answered: {silence} {BY_HAND}")
    sentence = unconfirmed_text(found)
    return _values(found, f"{sentence[:1].upper()}{sentence[1:]}.")


def _values(replies: tuple[EstopReply, ...], sentence: str) -> dict[str, Any]:
    return {
        "confirmed": bool(replies) and all(reply.stopped for reply in replies),
        "sentence": sentence,
        "robots": {one.robot: {"stopped": one.stopped, "guard": one.guard, "after": one.after_s} for one in replies},
    }


def _run_program(order: StopOrder, words: tuple[str, ...]) -> tuple[int | None, dict[str, Any] | None, str]:
    """Run `testudo estop`; return its exit status and values, None without, and what it says is wrong."""
    reach = ("--local",) if order.local else ()
    with tempfile.TemporaryDirectory(prefix="testudo-stop-") as folder:
        file = Path(folder, "stop.json")
        options = ("--wait", str(order.wait), "--domain", str(order.domain), "--json", str(file))
        try:
            done = subprocess.run(  # noqa: S603 -- our own program, with a file and numbers
                [*_PROGRAM, str(order.fleet), *options, *reach, *words],
                capture_output=True,
                text=True,
                timeout=order.wait + _START_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return None, None, f"`testudo estop` did not end: {type(error).__name__}"
        told = done.stderr.strip().removeprefix("testudo: ").partition("\n")[0]
        try:
            return done.returncode, json.loads(file.read_text(encoding="utf-8")), told
        except (OSError, ValueError):
            return done.returncode, None, told


def _hurry() -> None:
    """Give this thread the priority of an operator's verb, where that is permitted."""
    with contextlib.suppress(OSError, AttributeError):
        kind = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(threading.get_native_id(), kind, os.sched_param(PRIORITIES["operator"]))
