"""Composes poses from TF transforms: the chain of links from a fixed frame to a robot body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic
from testudo_runs.bags.cdr import groups
from testudo_runs.bags.message_definitions import Types
from testudo_runs.importing.bags.clock_steps import continuous
from testudo_runs.importing.bags.topic_decoding import TopicSamples, texts_of
from testudo_runs.importing.mapping.column_conversion import rotated

_PARTS = ("translation.x", "translation.y", "translation.z", "rotation.x", "rotation.y", "rotation.z", "rotation.w")


@dataclass(frozen=True)
class Link:
    """Pose of one frame in another over time."""

    parent: str
    stamp_ns: np.ndarray
    """(T,), rising."""
    log_ns: np.ndarray
    values: np.ndarray
    """(T, 7) position [m] and quaternion x y z w."""

    @property
    def moves(self) -> bool:
        """Return whether its values change."""
        return len(self.stamp_ns) > 1 and bool((self.values != self.values[0]).any())


def read_links(found: Mapping[BagTopic, Sequence[BagMessage]], types: Types, lost: list[str]) -> dict[str, Link]:
    """Return the links of all transforms of a bag by child frame; ``lost`` takes unreadable messages as sentences."""
    parts: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    for topic, messages in found.items():
        log = np.array([message.log_ns for message in messages], np.int64)
        seen = 0
        for group in groups(types.store(topic), topic.type, [message.data for message in messages]):
            seen += len(group.index)
            for path, child in texts_of(group, "child_frame_id"):
                base = path.removesuffix("child_frame_id")
                parent = _plain(group.layout.texts[f"{base}header.frame_id"])
                stamp = group.column(f"{base}header.stamp.sec").astype(np.int64) * NANO + group.column(
                    f"{base}header.stamp.nanosec"
                )
                values = np.stack([group.column(f"{base}transform.{part}") for part in _PARTS], axis=1).astype(float)
                parts.setdefault((parent, _plain(child)), []).append((stamp, log[group.index], values))
        if seen < len(messages):
            lost.append(f"{topic.name}: {len(messages) - seen} of {len(messages)} messages cannot be decoded; left out")
    links: dict[str, Link] = {}
    for (parent, child), pieces in parts.items():
        stamp, log, values = (np.concatenate([piece[k] for piece in pieces]) for k in range(3))
        order = np.argsort(log, kind="stable")
        log, stamp, values = log[order], stamp[order], values[order]
        log, stamp, _ = continuous(log, stamp)
        order = np.argsort(stamp, kind="stable")
        link = Link(parent, stamp[order], log[order], values[order])
        if child not in links or len(link.stamp_ns) > len(links[child].stamp_ns):
            links[child] = link
    return links


def chain(links: Mapping[str, Link], child: str, parent: str) -> list[str]:
    """Return the frames from a child up to below its parent; an empty parent means the root.

    Raises:
        BagError: there is no such chain.
    """
    child, parent = _plain(child), _plain(parent)
    frames: list[str] = []
    at = child
    while at in links and at != parent:
        if at in frames:
            raise BagError(f"transforms: the frames {', '.join(frames)} form a circle")
        frames.append(at)
        at = links[at].parent
    if not frames or (parent and at != parent):
        known = ", ".join(f"{link.parent} -> {name}" for name, link in links.items()) or "none"
        raise BagError(
            f"transforms: no chain from {parent or 'any frame'} to {child or 'an unnamed frame'}; there are: {known}"
        )
    return frames


def compose(links: Mapping[str, Link], frames: Sequence[str]) -> TopicSamples:
    """Return the pose of the first frame in the parent of the last, at the times of the link with most samples.

    The other moving links are interpolated; times outside the span of any of them are omitted.
    """
    moving = [name for name in frames if links[name].moves] or [max(frames, key=lambda x: len(links[x].stamp_ns))]
    lead = max(moving, key=lambda name: len(links[name].stamp_ns))
    stamp, log = links[lead].stamp_ns, links[lead].log_ns
    for name in moving:
        inside = (stamp >= links[name].stamp_ns[0]) & (stamp <= links[name].stamp_ns[-1])
        stamp, log = stamp[inside], log[inside]
    pose: np.ndarray | None = None
    for name in frames:
        link = links[name]
        values = (
            at_times(link, stamp)
            if name in moving
            else np.broadcast_to(link.values[-1], (len(stamp), link.values.shape[1]))
        )
        pose = values if pose is None else composed(values, pose)
    return TopicSamples(
        stamp, log, np.zeros((0, 7)) if pose is None else np.array(pose), links[frames[-1]].parent, True
    )


def at_times(link: Link, times_ns: np.ndarray) -> np.ndarray:
    """Return the values (T, 7) of a link at times (T,) within its span, interpolated linearly."""
    stamp, keep = np.unique(link.stamp_ns, return_index=True)
    values = link.values[keep]
    if len(stamp) < 2:
        return np.broadcast_to(values[0], (len(times_ns), 7))
    right = np.clip(np.searchsorted(stamp, times_ns, side="right"), 1, len(stamp) - 1)
    span = (stamp[right] - stamp[right - 1]).astype(float)
    share = ((times_ns - stamp[right - 1]) / span)[:, None]
    low, high = values[right - 1], values[right]
    # q and -q are the same rotation: use the nearer one; between samples the chord is close to the arc
    sign = np.where((low[:, 3:] * high[:, 3:]).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    with np.errstate(invalid="ignore"):  # values that are not finite are removed later
        mixed = low + share * (np.concatenate([high[:, :3], sign * high[:, 3:]], axis=1) - low)
    mixed[:, 3:] /= np.maximum(np.linalg.norm(mixed[:, 3:], axis=1, keepdims=True), 1e-12)
    exact = share[:, 0] == 0
    mixed[exact] = low[exact]
    mixed[share[:, 0] == 1] = high[share[:, 0] == 1]
    return mixed


def composed(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the composition (T, 7) of poses: ``inner`` is given in the frames whose poses are ``outer``."""
    turn = outer[:, 3:]
    return np.concatenate([outer[:, :3] + rotated(inner[:, :3], turn), _product(turn, inner[:, 3:])], axis=1)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    vector = a[:, 3:] * b[:, :3] + b[:, 3:] * a[:, :3] + np.cross(a[:, :3], b[:, :3])
    return np.concatenate([vector, a[:, 3:] * b[:, 3:] - (a[:, :3] * b[:, :3]).sum(axis=1, keepdims=True)], axis=1)


def _plain(frame: str) -> str:
    """Return a frame name without the leading slash of ROS 1."""
    return frame.removeprefix("/")
