"""What `testudo estop` prints; imported after the stop."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from testudo_deploy.commands.report import Report, table
from testudo_deploy.station.fleet_status import EstopReply


def show(answers: Sequence[EstopReply], domain_id: int, json: Path | None, sentence: str, *, release: bool) -> None:
    """Print the answers of the robots, and a sentence.

    Args:
        answers: of all robots that are expected or were heard.
        domain_id: the ROS domain.
        json: also write the values to this file.
        sentence: what was not achieved; empty if all was.
        release: the stop was released.
    """
    rows = [
        (
            answer.robot,
            "yes" if answer.stopped else "NO",
            answer.guard,
            answer.mode,
            "" if answer.after_s is None else f"{answer.after_s:.2f}",
        )
        for answer in answers
    ]
    values = {
        "schema": "testudo/estop/2",
        "domain_id": domain_id,
        "robots": {
            item.robot: {"stopped": item.stopped, "guard": item.guard, "mode": item.mode, "after_s": item.after_s}
            for item in answers
        },
    }
    title = f"Emergency stop (ROS_DOMAIN_ID={domain_id})"
    shown = (table(title, ("robot", "stopped", "guard", "mode", "after [s]"), rows),) if rows else ()
    Report(values, shown).show(json)
    if sentence:
        Console().print(Text(sentence, "red"), soft_wrap=True)
        return
    after = "released; a stopped robot stays so until `testudo rearm ROBOT`"
    stopped = "all stopped; to drive again: `testudo estop --release`, then `testudo rearm ROBOT`"
    Console().print(Text(after if release else stopped), soft_wrap=True)
