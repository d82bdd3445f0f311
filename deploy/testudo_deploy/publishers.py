"""Who may publish on a topic of commands; pure."""

from __future__ import annotations

from collections.abc import Sequence


def foreign_publishers(found: Sequence[str], own: str, allowed: Sequence[str] = ()) -> list[str]:
    """Return the nodes that publish where only ``own`` should.

    Args:
        found: absolute names of nodes, one for each of their publishers on the topic.
        own: absolute name of the node that should; a second one of that name is another process.
        allowed: names without namespace of nodes that may, too, as a link profile lists them.
    """
    rest = list(found)
    if own in rest:
        rest.remove(own)
    return [name for name in rest if name.rpartition("/")[2] not in allowed]
