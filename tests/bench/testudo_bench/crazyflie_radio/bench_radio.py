"""`testudo bench radio`: the unmodified `cflib` flies a simulated Crazyflie under time-outs and losses."""

import importlib.metadata
from collections.abc import Callable
from functools import partial

from testudo_bench.crazyflie_radio import radio_cases
from testudo_bench.crazyflie_radio.radio_cases import Row
from testudo_crazyflie.udp_server import PRIORITY, keep_time
from testudo_deploy.commands.report import BenchResult

_STREAM_S, _QUICK_S = 60.0, 5.0
_SHARES = (0.1, 0.3, 0.5)


def bench_radio(*, quick: bool = False, say: Callable[[str], None] | None = None) -> BenchResult:
    """Fly every case in real time, with real-time scheduling if permitted, and compare it with its requirement.

    Args:
        quick: set-points for 5 s instead of 60.
        say: called with the name of each case.
    """
    real_time = keep_time(PRIORITY)  # like the driver node
    found: list[tuple[str, Row]] = []
    for name, fly in _rows(_QUICK_S if quick else _STREAM_S).items():
        if say is not None:
            say(name)
        found.append((name, fly()))
    table = [(name, row.found, row.bar, "yes" if row.holds else "NO", row.said) for name, row in found]
    values = {
        "rows": [
            {"row": name, "found": row.found, "bar": row.bar, "holds": row.holds, "said": row.said, **row.values}
            for name, row in found
        ],
        "hold": sum(row.holds for _, row in found),
        "cflib": importlib.metadata.version("cflib"),
        "real_time": real_time,
    }
    title = f"cflib {values['cflib']} against a simulated Crazyflie: {values['hold']} of {len(found)} rows hold"
    return BenchResult(title, ("row", "found", "bar", "holds", "said"), table, values)


def _rows(stream_s: float) -> dict[str, Callable[[], Row]]:
    """Return the cases by name, in order."""
    losses = {
        f"{100 * share:.0f} % of packets lost, {'repeated' if repeats else 'gone'}": partial(
            radio_cases.loses, share, repeats=repeats
        )
        for repeats in (True, False)
        for share in _SHARES
    }
    return {
        "log at 100 Hz, set-points at 50 Hz": partial(radio_cases.streams, stream_s),
        "commands end": radio_cases.commands_end,
        "set-points end (process stopped)": partial(radio_cases.radio_ends, process=True),
        "radio out of reach": partial(radio_cases.radio_ends, process=False),
        "radio's driver fails": radio_cases.socket_closes,
        "log block lost": radio_cases.block_ends,
        **losses,
        "40 % lost from the start": radio_cases.loses_too_much,
        "20 ms each way": partial(radio_cases.late, 0.02),
        "60 ms each way": partial(radio_cases.too_late, 0.06),
        "no vehicle answers": radio_cases.no_vehicle,
        "Mellinger controller": radio_cases.wrong_controller,
        "battery low": radio_cases.battery_is_empty,
        "tumbled": radio_cases.tumbles,
        "locked": radio_cases.is_locked,
        "arming refused": radio_cases.arming_is_refused,
        "second commander": radio_cases.second_commander,
        "emergency": partial(radio_cases.emergency, 0.0),
        "emergency, 50 % lost": partial(radio_cases.emergency, 0.5),
        "closed in flight": radio_cases.closes_in_flight,
        "negative control: close_link of cflib": radio_cases.cflib_closes_in_flight,
    }
