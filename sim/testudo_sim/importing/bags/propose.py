"""Proposes a mapping for bags that nobody described: from types, names, transforms, and what moves together.

Nothing is guessed silently. A choice that a rule or the motion decides stands in the mapping with its reason; one that
nothing decides is told as ambiguous, and the mapping is then only a beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testudo_sim.bags.contents import BagError, Tell
from testudo_sim.importing.bags.candidates import Candidate, Found, candidates_of
from testudo_sim.importing.bags.motion import ANY_FRAME, IN_BODY, IN_WORLD, Match, Motion, follow
from testudo_sim.importing.bags.naming import plain_name
from testudo_sim.importing.bags.topic_map import TopicMap, topics_text
from testudo_sim.importing.map_file import ReadMap, parse_map
from testudo_sim.recording.roles import ROLES

_LAGS_S = (-0.1, 2.0)
_CLEAR, _MARGIN, _APART, _SAME = 0.4, 0.1, 0.2, 0.98
_EQUAL = 0.02
_ALONE = "robot"


@dataclass(frozen=True)
class Proposal:
    """A mapping that was made of what stands in the bags."""

    text: str
    """The mapping file, ready to be saved."""
    mapping: ReadMap | None
    """The same, read; None if nothing of use was found."""
    ambiguous: tuple[str, ...]
    """What nothing decides: to be settled by a person."""
    reasons: dict[str, str]
    """Why each topic was taken, by topic and role."""
    unused: tuple[str, ...]


@dataclass
class _Team:
    """Candidates by robot while the proposal grows."""

    robots: dict[str, list[Candidate]] = field(default_factory=dict)
    why: dict[TopicMap, str] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)
    entries: list[TopicMap] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def propose_map(paths: Sequence[str | Path] | str | Path, *, tell: Tell = lambda _: None,
                damage: list[str] | None = None, msg_path: Sequence[str | Path] = (), robot_type: str = "") -> Proposal:
    """Propose the section `topics` of a mapping.

    Args:
        paths: a bag, or several that recorded the same run.
        tell: is told the share that is done.
        damage: takes what was lost, in words.
        msg_path: folders with .msg files of custom messages.
        robot_type: for the mapping; empty to leave it to the person who imports.

    Raises:
        BagError: there is no bag.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    lost = damage if damage is not None else []
    folders = [Path(folder) for folder in msg_path]
    found = [candidates_of(path, folders, lambda share, k=k: tell((k + share) / len(paths)), lost)
             for k, path in enumerate(paths)]
    team = _grouped(found)
    _join_parts(team)
    _join_nameless(team)
    _join_bodies(team)
    for robot, candidates in team.robots.items():
        _choose(team, robot, candidates, several=len(found) > 1)
    unused = [text for one in found for text in one.unused] + team.left
    return _written(found, team, unused, robot_type)


def _grouped(found: Sequence[Found]) -> _Team:
    """Return candidates by the robot that their names tell; what names no robot is the bag's own."""
    team = _Team()
    for one in found:
        alone = plain_name(one.source.name) if len(found) > 1 else ""
        for candidate in one.candidates:
            name = plain_name(candidate.robot or candidate.child) if candidate.robot or candidate.child else alone
            if candidate.child and not candidate.robot and candidate.type.endswith("TFMessage"):
                name = alone
            team.robots.setdefault(name, []).append(candidate)
    return team


def _join_parts(team: _Team) -> None:
    """Take for no robot what only measures: a sensor with a name of its own is one of the only robot, or of none."""
    parts = [name for name, mine in team.robots.items() if not _moving(mine)]
    robots = [name for name in team.robots if name not in parts]
    for name in parts if robots else ():
        loose = team.robots.pop(name)
        if len(robots) == 1:
            for candidate in loose:
                candidate.rank += 1
            team.robots[robots[0]] += loose
        else:
            team.left += [f"{candidate.topic} (of no certain robot)" for candidate in loose]


def _join_nameless(team: _Team) -> None:
    """Give topics that name no robot to the one whose motion they go with."""
    nameless = team.robots.pop("", [])
    if not nameless:
        return
    if not team.robots:
        team.robots[_ALONE] = nameless
        return
    owner, reason = _owner(team, nameless)
    if owner is None:
        team.ambiguous.append(f"{_names(nameless)}: the names tell no robot, and {reason}; there are "
                              f"{', '.join(team.robots)}")
        team.left += [f"{candidate.topic} (of no certain robot)" for candidate in nameless]
        return
    team.robots[owner] += nameless
    for candidate in nameless:
        candidate.note = candidate.note or reason


def _owner(team: _Team, nameless: Sequence[Candidate]) -> tuple[str | None, str]:
    scores: dict[str, float] = {}
    for name, candidates in team.robots.items():
        matches = [match for mine in _moving(nameless) for theirs in _moving(candidates)
                   if mine.role != theirs.role and (match := _match(mine, theirs))]
        scores[name] = max((match.score for match in matches), default=0.0)
    ranked = sorted(scores, key=lambda name: -scores[name])
    best = ranked[0]
    second = scores[ranked[1]] if len(ranked) > 1 else 0.0
    if scores[best] > _CLEAR and scores[best] - second > _MARGIN:
        return best, f"goes with the motion of {best} (correlation {scores[best]:.2f})"
    return None, f"their motion is like that of none clearly (best {best}: {scores[best]:.2f}, next {second:.2f})"


def _join_bodies(team: _Team) -> None:
    """Join a body that was only seen with a robot that was told or believed something, if these two alone move alike.

    It counts both ways, to all bodies and to all robots: of two robots that move alike each would else be given the
    other's body, or the first of them the only one that was seen.
    """
    seen = [name for name, mine in team.robots.items() if {one.role for one in mine} <= {"pose", "setpoint"}]
    others = [name for name in team.robots if name not in seen]
    told = [name for name in others if not any(one.role == "pose" and one.rank == 0 for one in team.robots[name])]
    alike = {(name, body): _likeness(team.robots[name], team.robots[body]) for name in others for body in seen}
    sure = {name: body for name in told for body in seen if alike[name, body] >= _CLEAR
            and not _rivals(alike, name, body)}
    for name in told:
        if name in sure:
            continue
        left = [body for body in seen if body not in sure.values() and alike[name, body] >= _CLEAR]
        if left:
            best = max(left, key=lambda body: alike[name, body])
            rivals = ", ".join(f"{one} as {other} does ({score:.2f})"
                               for (one, other), score in _rivals(alike, name, best).items())
            team.ambiguous.append(f"{name}: {best} moves as {name} does ({alike[name, best]:.2f}), but also {rivals}; "
                                  "its pose is not given")
    for name, body in sure.items():
        for candidate in team.robots.pop(body):
            candidate.note = f"{body} moves as {name} does (correlation {alike[name, body]:.2f})"
            team.robots[name].append(candidate)
        seen.remove(body)
    for name in seen:
        motions = [motion for one in team.robots[name] if (motion := one.motion())]
        if len(team.robots) > 1 and not any(motion.lively() for motion in motions):
            team.left.append(f"{_names(team.robots.pop(name))} (a body that never moves)")


def _likeness(first: Sequence[Candidate], second: Sequence[Candidate]) -> float:
    """Return how much alike the motions of two robots or bodies are at best: a correlation."""
    return max((match.score for one in _moving(first) for other in _moving(second) if (match := _match(one, other))),
               default=0.0)


def _rivals(alike: Mapping[tuple[str, str], float], name: str, body: str) -> dict[tuple[str, str], float]:
    """Return the pairs (body, robot) with one of these two that go together nearly as well as they do, or better."""
    return {(other, one): score for (one, other), score in alike.items() if (one == name) != (other == body)
            and alike[name, body] - score < _APART}


def _choose(team: _Team, robot: str, candidates: Sequence[Candidate], *, several: bool) -> None:
    for role in ROLES:
        mine = [one for one in candidates if one.role == role]
        if role == "pose" and any(one.role == "odometry" for one in candidates):
            team.left += [f"{one.topic} to {one.child} (says what the odometry says)" for one in mine if one.reckoned]
            mine = [one for one in mine if not one.reckoned]
        by_topic: dict[tuple[str, str], list[Candidate]] = {}
        for one in mine:
            by_topic.setdefault((one.topic, one.child), []).append(one)
        if not by_topic:
            continue
        firsts = [ones[0] for ones in by_topic.values()]
        chosen, why = _command(team, robot, firsts, candidates) if role == "command" else _ranked(team, robot, firsts)
        bag = chosen.bag if several and len(by_topic[chosen.topic, chosen.child]) == 1 else ""
        entry = chosen.entry(robot, bag, _command_frame(chosen, candidates) if role == "command" else "")
        details = ", ".join(text for text in (chosen.note, why) if text)
        team.entries.append(entry)
        team.why[entry] = (f"{chosen.type.rpartition('/')[2]}, {chosen.rate_hz:.1f} Hz" + (f": {details}" if details
                                                                                          else ""))
        team.left += [f"{one.topic} (another {role} of {robot})" for one in firsts if one is not chosen]


def _ranked(team: _Team, robot: str, mine: Sequence[Candidate]) -> tuple[Candidate, str]:
    """Return the likeliest of several for a role that no motion decides."""
    ranked = sorted(mine, key=lambda one: one.rank)
    best = ranked[0]
    if len(ranked) == 1:
        return best, ""
    others = _names(ranked[1:])
    if ranked[1].rank == best.rank:
        rivals = [one for one in ranked if one.rank == best.rank]
        team.ambiguous.append(f"{robot}: its {best.role} could be {_names(rivals)}; {best.topic} stands in the mapping")
        return best, f"AMBIGUOUS: could be {others} as well"
    return best, f"by its name or kind before {others}"


def _command(team: _Team, robot: str, mine: Sequence[Candidate], all_of_it: Sequence[Candidate]
             ) -> tuple[Candidate, str]:
    """Return the command that the robot's motion follows."""
    motions = [one for one in all_of_it if one.role in ("pose", "odometry")]
    matches = {one: max((match for motion in motions if (match := _match(one, motion))), key=lambda match: match.score,
                        default=None) for one in mine}
    # of those that go equally well with the motion the usual name comes first
    ranked = sorted(mine, key=lambda one: (-round(matches[one].score / _EQUAL) if matches[one] else 1, one.rank))
    best, match = ranked[0], matches[ranked[0]]
    if match is None:
        if len(ranked) > 1:
            team.ambiguous.append(f"{robot}: its commands could be {_names(ranked)}, and nothing moves by which to "
                                  f"tell; {best.topic} stands in the mapping")
        return best, "nothing moves by which to check it" if len(ranked) == 1 else "AMBIGUOUS"
    when = f"{abs(match.lag_s):.2f} s {'later' if match.lag_s >= 0 else 'before it'}"
    why = f"the motion follows it (correlation {match.score:.2f}, {when})"
    if match.score < _CLEAR:
        team.ambiguous.append(f"{robot}: its motion hardly follows {best.topic} (correlation {match.score:.2f}); is it "
                              "another robot's, or are there commands that were not recorded?")
        why = f"AMBIGUOUS: the motion hardly follows it (correlation {match.score:.2f})"
    for other in ranked[1:]:
        rival = matches[other]
        score = rival.score if rival else 0.0
        if match.score - score > _MARGIN:
            why += f"; {other.topic} less ({score:.2f})"
        elif _alike(best, other):
            why += f"; {other.topic} holds nearly the same"
        else:
            why = f"AMBIGUOUS, {why}"
            team.ambiguous.append(f"{robot}: its motion follows {best.topic} ({match.score:.2f}) and {other.topic} "
                                  f"({score:.2f}) alike; {best.topic} stands in the mapping")
    return best, why


def _command_frame(command: Candidate, all_of_it: Sequence[Candidate]) -> str:
    """Return `body` or `world` for commands with a sideways part, by which of them the motion follows."""
    asked = command.motion()
    if asked is None or "left" not in asked.lively():
        return ""
    body = world = 0.0
    for one in all_of_it:
        motion = one.motion() if one.role in ("pose", "odometry") else None
        if motion is not None:
            scores = [match.score if (match := follow(asked, motion, _LAGS_S, names)) else 0.0
                      for names in (IN_BODY[:2], IN_WORLD[:2])]
            body, world = max(body, scores[0]), max(world, scores[1])
    return "body" if body > world + _MARGIN else "world" if world > body + _MARGIN else ""


def _match(first: Candidate, second: Candidate) -> Match | None:
    """Return how two candidates go together, the command first; of different bags at any lag."""
    if first.role != "command" and second.role == "command":
        first, second = second, first
    one, other = first.motion(), second.motion()
    if one is None or other is None:
        return None
    lags = _LAGS_S if first.role == "command" else (-1.0, 1.0)
    if first.bag != second.bag:
        lags = None
    return _best(one, other, lags, (IN_BODY, ANY_FRAME) if first.role == "command" else (ANY_FRAME,))


def _best(one: Motion, other: Motion, lags: tuple[float, float] | None, kinds: Sequence[tuple[str, ...]]
          ) -> Match | None:
    matches = [match for names in kinds if (match := follow(one, other, lags, names))]
    return max(matches, key=lambda match: match.score, default=None)


def _alike(first: Candidate, second: Candidate) -> bool:
    one, other = first.motion(), second.motion()
    match = follow(one, other, (-0.3, 0.3), IN_BODY) if one and other else None
    return match is not None and match.score > _SAME


def _moving(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in candidates if one.role in ("pose", "odometry", "command")]


def _names(candidates: Sequence[Candidate]) -> str:
    return ", ".join(dict.fromkeys(f"{one.topic} of {one.child}" if one.child else one.topic for one in candidates))


def _written(found: Sequence[Found], team: _Team, unused: Sequence[str], robot_type: str) -> Proposal:
    names = [one.source.name for one in found]
    head = [f"proposed by `testudo inspect` for {', '.join(names)}: look it over, then",
            "testudo import BAG RUN --map FILE"]
    lines = [f"# {line}\n" for line in head]
    lines += [f"# AMBIGUOUS: {text}\n" for text in team.ambiguous]
    lines.append(topics_text(plain_name(names[0]), f"proposed for {', '.join(names)}", robot_type, team.entries,
                             team.why))
    lines += [f"# not used: {text}\n" for text in unused]
    text = "".join(lines)
    if not any(entry.role in ("pose", "odometry") for entry in team.entries):
        team.ambiguous.append("no topic shows where a robot was: pose or odometry is needed")
    mapping = parse_map(text, "the proposed mapping") if team.entries else None
    reasons = {f"{entry.topic} {entry.robot} {entry.role}": why for entry, why in team.why.items()}
    return Proposal(text, mapping, tuple(team.ambiguous), reasons, tuple(unused))


def settled(proposal: Proposal) -> ReadMap:
    """Return the mapping of a proposal that nothing is ambiguous in.

    Raises:
        BagError: something is, or there is nothing of use.
    """
    if proposal.mapping is None:
        raise BagError("no topic of the bag is of a type that can be used: " + ("; ".join(proposal.unused[:8]) or "it "
                       "holds none"))
    if proposal.ambiguous:
        raise BagError("the mapping is ambiguous: " + "; ".join(proposal.ambiguous) + "; save the proposal that "
                       "`testudo inspect` prints, settle it, and give it with --map")
    return proposal.mapping
