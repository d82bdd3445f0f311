"""Converts the messages of one bag to samples by robot and role, with corrected stamps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME
from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic, clock_time
from testudo_runs.bags.bag_source import BagSource
from testudo_runs.bags.cdr import Types, groups
from testudo_runs.importing.bags.clock_steps import (
    ClockStep,
    continuous,
    convert_to_sim_time,
    falls,
    recorder_steps,
    without_recorder_steps,
)
from testudo_runs.importing.bags.topic_decoding import TF, TopicSamples, frame_of, read_samples, texts_of
from testudo_runs.importing.mapping.axes import table_in_rep103
from testudo_runs.importing.mapping.column_conversion import LARGEST, NO_ATTITUDE, rotated
from testudo_runs.importing.mapping.topic_mapping import TopicMap
from testudo_runs.recording.recording import ATTITUDE

_PARTS = ("translation.x", "translation.y", "translation.z", "rotation.x", "rotation.y", "rotation.z", "rotation.w")


@dataclass(frozen=True)
class Link:
    """Pose of one frame in another over time."""

    parent: str
    stamp_ns: np.ndarray  # (T,), rising
    log_ns: np.ndarray
    values: np.ndarray  # (T, 7) position [m] and quaternion x y z w

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
    a, b = outer[:, 3:], inner[:, 3:]
    vector = a[:, 3:] * b[:, :3] + b[:, 3:] * a[:, :3] + np.cross(a[:, :3], b[:, :3])
    scalar = a[:, 3:] * b[:, 3:] - (a[:, :3] * b[:, :3]).sum(axis=1, keepdims=True)
    return np.concatenate([outer[:, :3] + rotated(inner[:, :3], a), vector, scalar], axis=1)


def _plain(frame: str) -> str:
    """Return a frame name without the leading slash of ROS 1."""
    return frame.removeprefix("/")


_OTHER_CLOCK_S = 1.0
_STRAY_NS = 86_400 * NANO
_FAR_NS, _FEW = 60 * NANO, 0.01
_STATIC = "_static"

Found = Mapping[BagTopic, Sequence[BagMessage]]


@dataclass
class BagSeries:
    """The samples of one bag, with notes and clock steps."""

    name: str
    path: Path
    samples: dict[TopicMap, TopicSamples]
    notes: list[str]
    steps: list[ClockStep] = field(default_factory=list)  # moments at which a clock was set


def topics_for(entries: Sequence[TopicMap]) -> set[str]:
    """Return the topics that entries need, including static transforms."""
    return {name for entry in entries for name in (entry.topic, entry.topic + _STATIC)}


def read_series(source: BagSource, found: Found, entries: Sequence[TopicMap], folders: Sequence[Path]) -> BagSeries:
    """Return the samples of a bag by entry of the mapping, without entries without messages.

    Losses are added to the damage of ``source``; ``found`` are its messages by topic, ``entries`` those of the mapping,
    ``folders`` have .msg files.

    Raises:
        BagError: a topic cannot have its role, or its type is unknown.
    """
    types = Types(source.contents.topics.values(), folders, source.folder.distribution)
    steps = recorder_steps(found, types)
    by_name: dict[str, tuple[BagTopic, list[BagMessage]]] = {}
    simulated, notes = convert_to_sim_time(without_recorder_steps(found, steps, source.name, source.damage), types)
    for topic, messages in simulated.items():
        by_name.setdefault(topic.name, (topic, []))[1].extend(messages)
    made = BagSeries(
        source.name, source.folder.path, {}, [step.sentence() for step in steps if not step.cut] + notes, steps
    )
    links: dict[str, dict[str, Link]] = {}
    for entry in entries:
        if entry.topic not in by_name:
            continue
        topic, messages = by_name[entry.topic]
        if topic.type == TF and not entry.fields:
            if entry.topic not in links:
                used = {
                    by_name[name][0]: by_name[name][1]
                    for name in (entry.topic, entry.topic + _STATIC)
                    if name in by_name
                }
                links[entry.topic] = read_links(used, types, source.damage)
            samples = _of_transforms(entry, links[entry.topic], source.damage)
        else:
            samples = read_samples(topic, messages, entry, types, source.damage)
        in_world = entry.role == "setpoint" or (entry.role == "command" and frame_of(entry, samples) == WORLD_FRAME)
        values = table_in_rep103(entry.role, samples.values, entry.axes, velocity_in_world=in_world)
        samples = replace(samples, values=values)
        made.samples[entry] = _settled(samples, entry, source.damage, made)
    return made


def _of_transforms(entry: TopicMap, links: Mapping[str, Link], lost: list[str]) -> TopicSamples:
    if not entry.child:
        raise BagError(
            f"topics: {entry.topic} of {entry.robot}: child: missing; expected one of the frames "
            f"{', '.join(links) or '(none)'}"
        )
    try:
        return compose(links, chain(links, entry.child, entry.parent))
    except BagError:
        if not lost:
            raise
        lost.append(f"{entry.topic}: the transforms to {entry.child} are lost")
        nothing = np.zeros(0, np.int64)
        return TopicSamples(nothing, nothing, np.zeros((0, 7)), entry.parent, has_stamp=True)


def _settled(samples: TopicSamples, entry: TopicMap, lost: list[str], made: BagSeries) -> TopicSamples:
    """Remove invalid values and impossible times, and convert other clocks to that of the recorder."""
    what, notes = f"{entry.topic} ({entry.robot}, {entry.role})", made.notes
    if entry.role == "pose" and entry.fields and not set(ATTITUDE) & set(entry.fields):
        notes.append(f"{what}: {NO_ATTITUDE}")
    sound = np.isfinite(samples.values).all(axis=1)
    if not sound.all():
        lost.append(f"{what}: {int((~sound).sum())} of {len(sound)} samples hold no finite numbers; left out")
    huge = sound & (np.abs(np.where(np.isfinite(samples.values), samples.values, 0.0)) > LARGEST).any(axis=1)
    if huge.any():
        lost.append(
            f"{what}: {int(huge.sum())} of {len(huge)} samples hold a value that is too large to be true; left out"
        )
    samples = _chosen(samples, sound & ~huge)
    if not len(samples):
        return samples
    good = (np.abs(samples.log_ns - np.median(samples.log_ns)) < 30 * _STRAY_NS) & ~_alone(samples.log_ns)
    if not good.all():
        lost.append(f"{what}: {int((~good).sum())} messages have an impossible record time; left out")
        samples = _chosen(samples, good)
    if entry.stamp == "record" or not samples.has_stamp:
        if not samples.has_stamp:
            notes.append(f"{what}: has no stamps; the times of recording are taken")
        return replace(samples, stamp_ns=samples.log_ns, has_stamp=False)
    if not samples.stamp_ns.any():
        notes.append(f"{what}: its stamps are all zero; the times of recording are taken")
        return replace(samples, stamp_ns=samples.log_ns, has_stamp=False)
    log_ns, stamp_ns, changes = continuous(samples.log_ns, samples.stamp_ns)
    for k, by_ns, stamped in changes:
        whose = f"{what}: the clock of its {'stamps' if stamped else 'times of recording'}"
        made.steps.append(ClockStep(whose, int(samples.log_ns[k - 1]), by_ns))
        notes.append(made.steps[-1].sentence())
    samples = replace(samples, log_ns=log_ns, stamp_ns=stamp_ns)
    return _in_order(_on_record_clock(samples, what, lost, notes), what, lost)


def _in_order(samples: TopicSamples, what: str, lost: list[str]) -> TopicSamples:
    """Keep the longest part between permanent steps back of the stamps, as the parts would overlap."""
    edges = falls(samples.stamp_ns)
    if not edges:
        return samples
    parts = np.searchsorted(edges, np.arange(len(samples)), side="right")
    kept = parts == np.bincount(parts).argmax()
    lost.append(
        f"{what}: the stamps step back permanently {'twice or more' if len(edges) > 1 else 'once'}, first at "
        f"{clock_time(int(samples.stamp_ns[edges[0]]))}; cut there, {int((~kept).sum())} of {len(kept)} "
        "samples are left out"
    )
    return _chosen(samples, kept)


def _on_record_clock(samples: TopicSamples, what: str, lost: list[str], notes: list[str]) -> TopicSamples:
    late_ns = samples.log_ns - samples.stamp_ns
    far = np.abs(late_ns - np.median(late_ns))
    few = (far > _FAR_NS).sum() <= max(1, _FEW * len(far))  # a clock step would make many
    good = far < (_FAR_NS if few else _STRAY_NS)
    if not good.all():
        lost.append(f"{what}: {int((~good).sum())} messages have an impossible stamp; left out")
        samples, late_ns = _chosen(samples, good), late_ns[good]
    if abs(float(np.median(late_ns))) < _OTHER_CLOCK_S * NANO:
        return samples
    # the message with the least delay shows the clock difference
    ahead_ns = np.int64(np.quantile(late_ns, 0.01))
    wander_s = float(np.quantile(late_ns, 0.9) - ahead_ns) / NANO
    if wander_s > _OTHER_CLOCK_S:
        rate = float(np.ptp(samples.stamp_ns) / max(np.ptp(samples.log_ns), 1))
        notes.append(
            f"{what}: its stamps, such as {clock_time(int(samples.stamp_ns[0]))}, are of a clock that runs "
            f"at {rate:.4g} of that of the recorder; the times of recording are taken. If it is simulated "
            "time, speeds and delays are wrong by this factor, unless a bag that holds /clock is read alone"
        )
        return replace(samples, stamp_ns=samples.log_ns, has_stamp=False)
    notes.append(
        f"{what}: its stamps are of another clock than that of the recorder; shifted "
        f"{'forward' if ahead_ns > 0 else 'back'} by {abs(ahead_ns) / NANO:.3f} s"
    )
    return replace(samples, stamp_ns=samples.stamp_ns + ahead_ns, ahead_ns=int(ahead_ns))


def _alone(times_ns: np.ndarray) -> np.ndarray:
    """Return the mask of single times (T,) far from both neighbours, which are near each other."""
    alone = np.zeros(len(times_ns), bool)
    step = np.abs(np.diff(times_ns))
    alone[1:-1] = (step[:-1] > _FAR_NS) & (step[1:] > _FAR_NS) & (np.abs(times_ns[2:] - times_ns[:-2]) < _FAR_NS)
    return alone


def _chosen(samples: TopicSamples, rows: np.ndarray) -> TopicSamples:
    if rows.all():
        return samples
    return replace(samples, stamp_ns=samples.stamp_ns[rows], log_ns=samples.log_ns[rows], values=samples.values[rows])
