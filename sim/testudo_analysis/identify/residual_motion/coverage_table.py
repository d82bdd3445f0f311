"""Table of the coverage of recorded motions by the bands of sampled futures."""

from collections.abc import Sequence

from rich.table import Table

from testudo_analysis.identify.estimation.identification_result import ANGLES, Coverage
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_deploy.commands.report import table


def coverage_table(title: str, rows: Sequence[Coverage]) -> Table:
    """Return a table of coverages of one split: one line for each horizon and channel, all robots together."""
    own = [row for row in rows if row.robot]
    robots = f"{len({row.robot for row in own})} robots" if len({row.robot for row in own}) > 1 else own[0].robot
    shown = []
    for horizon, channel in dict.fromkeys((row.horizon_s, row.channel) for row in own):
        parts = [row for row in own if (row.horizon_s, row.channel) == (horizon, channel)]
        count = sum(row.count for row in parts)
        inside, without = (
            sum(getattr(row, name) * row.count for row in parts) / count for name in ("inside", "without_noise")
        )
        unit, factor = SHOWN_UNITS["rad" if channel in ANGLES else "m"]
        width = sorted(row.width for row in parts)[len(parts) // 2] * factor
        cells = f"{inside:.1%}", f"{without:.1%}", f"{width:.1f} {unit}", str(count)
        shown.append((robots, f"{horizon:g} s", channel, *cells))
    return table(title, ("robot", "after", "channel", "inside", "without the process", "width", "motions"), shown)
