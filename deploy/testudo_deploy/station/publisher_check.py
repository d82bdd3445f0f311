"""Who may publish on a topic of commands, and which robots speak that nobody knows; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PEER_TOPIC = "peer_state"
"""On which every robot says where it is and will be."""


def unknown_robots(topics: Iterable[str], robots: Sequence[str]) -> list[str]:
    """Return the names of robots that have a topic for their peers and are not in the fleet.

    Args:
        topics: absolute names.
        robots: of the fleet.
    """
    found = (topic[1:].partition("/") for topic in topics)
    return sorted({name for name, _, kind in found if kind == PEER_TOPIC and name not in robots})


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
