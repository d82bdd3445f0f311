"""Proposes a mapping for bags from message types, topic names, transforms and correlated motion.

Each choice by a rule or by the motion has its reason in the mapping. Undecided choices are reported as ambiguous.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testudo_runs.bags.bag_contents import BagError, Tell
from testudo_runs.importing.bags.motion_matching import IN_BODY, IN_WORLD, follow
from testudo_runs.importing.bags.robot_grouping import (
    CLEAR,
    LAGS_S,
    MARGIN,
    RobotTopics,
    bodies,
    follows,
    grouped,
    match_of,
    names_of,
)
from testudo_runs.importing.bags.topic_candidates import Candidate, candidates_of
from testudo_runs.importing.mapping.mapping_file import ReadMap, parse_map, plain_name
from testudo_runs.importing.mapping.topic_mapping import topics_text
from testudo_runs.recording.recording import ROLES

_SAME = 0.98
_EQUAL = 0.02


@dataclass(frozen=True)
class Proposal:
    """A proposed mapping with its reasons."""

    text: str  # the mapping file, ready to be saved
    mapping: ReadMap | None  # the parsed mapping; None if no usable topic was found
    ambiguous: tuple[str, ...]  # undecided choices, for the user
    reasons: dict[str, str]  # reason for each chosen topic, by topic and role
    unused: tuple[str, ...]


def propose_map(
    paths: Sequence[str | Path] | str | Path,
    *,
    tell: Tell = lambda _: None,
    damage: list[str] | None = None,
    msg_path: Sequence[str | Path] = (),
    robot_type: str = "",
) -> Proposal:
    """Propose the section `topics` of a mapping.

    ``paths`` are a bag, or several of the same run; ``tell`` gets the completed fraction; ``damage`` collects a
    sentence for each loss; ``msg_path`` are folders with .msg files of custom messages; ``robot_type`` is empty if
    given at import.

    Raises:
        BagError: there is no bag.
    """
    bags = [paths] if isinstance(paths, (str, Path)) else list(paths)
    lost = damage if damage is not None else []
    folders = [Path(folder) for folder in msg_path]
    found = [
        candidates_of(path, folders, lambda share, k=k: tell((k + share) / len(bags)), lost)
        for k, path in enumerate(bags)
    ]
    team = grouped(found)
    for robot, candidates in team.robots.items():
        _choose(team, robot, candidates, several=len(found) > 1)
    unused = [text for one in found for text in one.unused] + team.left
    names = [one.source.name for one in found]
    head = [
        f"proposed by `testudo inspect` for {', '.join(names)}: check it, then",
        "testudo import BAG RUN --map FILE",
    ]
    lines = [f"# {line}\n" for line in head]
    lines += [f"# AMBIGUOUS: {text}\n" for text in team.ambiguous]
    lines.append(
        topics_text(plain_name(names[0]), f"proposed for {', '.join(names)}", robot_type, team.entries, team.why)
    )
    lines += [f"# not used: {text}\n" for text in unused]
    text = "".join(lines)
    if not any(entry.role in ("pose", "odometry") for entry in team.entries):
        team.ambiguous.append("no topic shows where a robot was: pose or odometry is needed")
    mapping = parse_map(text, "the proposed mapping") if team.entries else None
    reasons = {f"{entry.topic} {entry.robot} {entry.role}": why for entry, why in team.why.items()}
    return Proposal(text, mapping, tuple(team.ambiguous), reasons, tuple(unused))


def _choose(team: RobotTopics, robot: str, candidates: Sequence[Candidate], *, several: bool) -> None:
    for role in ROLES:
        mine = [one for one in candidates if one.role == role]
        if role == "pose" and any(one.role == "odometry" for one in candidates):
            team.left += [f"{one.topic} to {one.child} (same as the odometry)" for one in mine if one.reckoned]
            mine = [one for one in mine if not one.reckoned]
        by_topic: dict[tuple[str, str], list[Candidate]] = {}
        for one in mine:
            by_topic.setdefault((one.topic, one.child), []).append(one)
        if not by_topic:
            continue
        firsts = [ones[0] for ones in by_topic.values()]
        if role == "command":
            # a name as a command takes precedence over correlated motion
            motions, named = bodies(candidates), [one for one in firsts if not one.unsure]
            possible = named or [one for one in firsts if any(follows(match_of(one, motion)) for motion in motions)]
            doubtful, firsts = [one for one in firsts if one not in possible], possible
            team.left += [
                f"{one.topic} (a velocity that is measured, or of no robot, by its name and the motion)"
                for one in doubtful
            ]
            if not firsts:
                continue
            chosen, why = _command(team, robot, firsts, candidates)
        else:
            chosen, why = _ranked(team, robot, firsts)
        bag = chosen.bag if several and len(by_topic[chosen.topic, chosen.child]) == 1 else ""
        entry = chosen.entry(robot, bag, _command_frame(chosen, candidates) if role == "command" else "")
        details = ", ".join(text for text in (chosen.note, why) if text)
        team.entries.append(entry)
        team.why[entry] = f"{chosen.type.rpartition('/')[2]}, {chosen.rate_hz:.1f} Hz" + (
            f": {details}" if details else ""
        )
        team.left += [f"{one.topic} (another {role} of {robot})" for one in firsts if one is not chosen]


def _ranked(team: RobotTopics, robot: str, mine: Sequence[Candidate]) -> tuple[Candidate, str]:
    """Return the best candidate by rank, for a role without motion."""
    ranked = sorted(mine, key=lambda one: one.rank)
    best = ranked[0]
    if len(ranked) == 1:
        return best, ""
    others = names_of(ranked[1:])
    if ranked[1].rank == best.rank:
        rivals = [one for one in ranked if one.rank == best.rank]
        team.ambiguous.append(f"{robot}: its {best.role} could be {names_of(rivals)}; {best.topic} is in the mapping")
        return best, f"AMBIGUOUS: could be {others} as well"
    return best, f"by its name or kind before {others}"


def _command(
    team: RobotTopics, robot: str, mine: Sequence[Candidate], candidates: Sequence[Candidate]
) -> tuple[Candidate, str]:
    """Return the command that the motion of the robot follows, and the reason."""
    motions = bodies(candidates)
    matches = {
        one: max(
            (match for motion in motions if (match := match_of(one, motion))),
            key=lambda match: match.score,
            default=None,
        )
        for one in mine
    }
    # equal correlations are ordered by name
    scores = {one: -round(match.score / _EQUAL) if match else 1 for one, match in matches.items()}
    ranked = sorted(mine, key=lambda one: (scores[one], one.rank))
    best, match = ranked[0], matches[ranked[0]]
    if match is None:
        if len(ranked) > 1:
            team.ambiguous.append(
                f"{robot}: its commands could be {names_of(ranked)}, and there is no motion to decide; "
                f"{best.topic} is in the mapping"
            )
        return best, "there is no motion to check it" if len(ranked) == 1 else "AMBIGUOUS"
    when = f"{abs(match.lag_s):.2f} s {'later' if match.lag_s >= 0 else 'before it'}"
    why = f"the motion follows it (correlation {match.score:.2f}, {when})"
    if match.score < CLEAR:
        others = [one for one in candidates if one.unsure and any(follows(match_of(one, motion)) for motion in motions)]
        team.ambiguous.append(
            f"{robot}: its motion hardly follows {best.topic} (correlation {match.score:.2f}); is it "
            "another robot's, or are there commands that were not recorded?"
            + (f" It follows {names_of(others)}" if others else "")
        )
        why = f"AMBIGUOUS: the motion hardly follows it (correlation {match.score:.2f})"
    for other in ranked[1:]:
        rival = matches[other]
        score = rival.score if rival else 0.0
        if match.score - score > MARGIN:
            why += f"; {other.topic} less ({score:.2f})"
        elif _alike(best, other):
            why += f"; {other.topic} holds nearly the same"
        else:
            why = f"AMBIGUOUS, {why}"
            team.ambiguous.append(
                f"{robot}: its motion follows {best.topic} ({match.score:.2f}) and {other.topic} "
                f"({score:.2f}) alike; {best.topic} is in the mapping"
            )
    return best, why


def _command_frame(command: Candidate, candidates: Sequence[Candidate]) -> Literal["", "body", "world"]:
    """Return `body` or `world` for commands with a lateral part, by correlation; empty if undecided."""
    asked = command.motion
    if asked is None or "left" not in asked.lively():
        return ""
    body = world = 0.0
    for one in bodies(candidates):
        motion = one.motion
        if motion is not None:
            scores = [
                match.score if (match := follow(asked, motion, LAGS_S, names)) else 0.0
                for names in (IN_BODY[:2], IN_WORLD[:2])
            ]
            body, world = max(body, scores[0]), max(world, scores[1])
    return "body" if body > world + MARGIN else "world" if world > body + MARGIN else ""


def _alike(first: Candidate, second: Candidate) -> bool:
    one, other = first.motion, second.motion
    match = follow(one, other, (-0.3, 0.3), IN_BODY) if one and other else None
    return match is not None and match.score > _SAME


def is_complete_mapping(proposal: Proposal) -> ReadMap:
    """Return the mapping of a proposal without ambiguity.

    Raises:
        BagError: an ambiguity, or no usable topic.
    """
    if proposal.mapping is None:
        raise BagError(
            "no topic of the bag is of a type that can be used: " + ("; ".join(proposal.unused[:8]) or "it holds none")
        )
    if proposal.ambiguous:
        raise BagError(
            "the mapping is ambiguous: " + "; ".join(proposal.ambiguous) + "; save the proposal that "
            "`testudo inspect` prints, correct it, and give it with --map"
        )
    return proposal.mapping
