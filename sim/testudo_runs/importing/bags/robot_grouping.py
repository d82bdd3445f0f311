"""Groups topics by robot: by name, then by correlated motion; undecided cases are reported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testudo_runs.importing.bags.motion_matching import ANY_FRAME, IN_BODY, MotionMatch, follow
from testudo_runs.importing.bags.topic_candidates import Candidate, CandidateSearch, robot_of, robots_of
from testudo_runs.importing.mapping.mapping_file import plain_name
from testudo_runs.importing.mapping.topic_mapping import TopicMap

LAGS_S = (-0.1, 2.0)
CLEAR, MARGIN = 0.4, 0.1
_APART = 0.2
_FOLLOWS_S = 0.05  # least delay of a motion after its command; a measured velocity has none
_ALONE = "robot"


@dataclass
class RobotTopics:
    """Candidates by robot, and the entries chosen so far."""

    robots: dict[str, list[Candidate]] = field(default_factory=dict)
    why: dict[TopicMap, str] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)
    entries: list[TopicMap] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def grouped(found: Sequence[CandidateSearch]) -> RobotTopics:
    """Return candidates by robot, by names and motion; undecided ones are in the lists of the result."""
    # candidates by robot name; those without one belong to the robot of the bag
    team = RobotTopics()
    named = robots_of({one.topic: one.type for part in found for one in part.candidates if not one.child})
    for part in found:
        alone = plain_name(part.source.name) if len(found) > 1 else ""
        for candidate in part.candidates:
            if not candidate.child and candidate.robot == robot_of(candidate.topic):
                candidate.robot = named[candidate.topic]
            name = plain_name(candidate.robot or candidate.child) if candidate.robot or candidate.child else alone
            if candidate.child and not candidate.robot and candidate.type.endswith("TFMessage"):
                name = alone
            team.robots.setdefault(name, []).append(candidate)
    loose: list[Candidate] = []  # velocities without a body that are not named as commands make no robot
    for name in list(team.robots):
        if all(one.unsure for one in _moving(team.robots[name])):
            loose += [one for one in team.robots[name] if one.unsure]
            team.robots[name] = [one for one in team.robots[name] if not one.unsure]
            if not team.robots[name]:
                team.robots.pop(name)
    _join_parts(team)
    _join_nameless(team)
    _join_commands(team)
    _join_bodies(team)
    _join_loose(team, loose)
    _report_incomplete(team)
    return team


def _join_parts(team: RobotTopics) -> None:
    """Assign sensors with a name of their own to the only robot, or to none if there are several."""
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


def _join_nameless(team: RobotTopics) -> None:
    """Assign topics without a robot name to the robot with correlated motion."""
    nameless = team.robots.pop("", [])
    if not nameless:
        return
    if not team.robots:
        team.robots[_ALONE] = nameless
        return
    owner, reason = _owner(team, nameless)
    if owner is None:
        team.ambiguous.append(
            f"{names_of(nameless)}: the names contain no robot, and {reason}; there are {', '.join(team.robots)}"
        )
        team.left += [f"{candidate.topic} (of no certain robot)" for candidate in nameless]
        return
    team.robots[owner] += nameless
    for candidate in nameless:
        candidate.note = candidate.note or reason


def _owner(team: RobotTopics, nameless: Sequence[Candidate]) -> tuple[str | None, str]:
    scores: dict[str, float] = {}
    for name, candidates in team.robots.items():
        matches = [
            match
            for mine in _sure(nameless)
            for theirs in _sure(candidates)
            if mine.role != theirs.role and (match := match_of(mine, theirs))
        ]
        scores[name] = max((match.score for match in matches), default=0.0)
    ranked = sorted(scores, key=lambda name: -scores[name])
    best = ranked[0]
    second = scores[ranked[1]] if len(ranked) > 1 else 0.0
    if scores[best] > CLEAR and scores[best] - second > MARGIN:
        return best, f"goes with the motion of {best} (correlation {scores[best]:.2f})"
    return None, f"their motion is like that of none clearly (best {best}: {scores[best]:.2f}, next {second:.2f})"


def _join_commands(team: RobotTopics) -> None:
    """Join a robot with commands only and one with odometry only, if the pair correlates uniquely both ways."""
    commanded = [name for name, mine in team.robots.items() if {one.role for one in _moving(mine)} == {"command"}]
    moved = [
        name
        for name, mine in team.robots.items()
        if "odometry" in (roles := {one.role for one in mine}) and "command" not in roles
    ]
    alike = {(name, other): _likeness(team.robots[name], team.robots[other]) for name in commanded for other in moved}
    for (name, other), score in alike.items():
        if score >= CLEAR and not _rivals(alike, name, other):
            for candidate in team.robots.pop(name):
                candidate.note = candidate.note or f"{other} follows the commands of {name} (correlation {score:.2f})"
                team.robots[other].append(candidate)


def _join_loose(team: RobotTopics, loose: Sequence[Candidate]) -> None:
    """Use a velocity as the command of a robot without one, if the motion of the robot follows it uniquely."""
    names = [name for name, mine in team.robots.items() if bodies(mine) and not _commands(mine)]
    alike = {(str(k), name): _followed(one, team.robots[name]) for k, one in enumerate(loose) for name in names}
    used: set[str] = set()
    for (k, name), score in alike.items():
        rivals = _rivals(alike, k, name)
        if score < CLEAR or any(other > score for other in rivals.values()):
            continue
        if rivals:
            others = names_of([loose[int(one)] for one, other in rivals if other == name])
            also = ", ".join(other for _, other in rivals if other != name)
            team.ambiguous.append(
                f"{name}: its motion follows {loose[int(k)].topic} ({score:.2f})"
                + (f", and {others} nearly as well" if others else "")
                + (f", as does that of {also}" if also else "")
                + "; its command is not given"
            )
            continue
        used.add(k)
        loose[int(k)].note = "a command by the motion only, not by its name"
        team.robots[name].append(loose[int(k)])
    team.left += [
        f"{one.topic} (a velocity that no robot's motion clearly follows)"
        for k, one in enumerate(loose)
        if str(k) not in used
    ]


def _report_incomplete(team: RobotTopics) -> None:
    """Report robots with commands only, and robots with odometry but without commands beside them."""
    commanded = [name for name, mine in team.robots.items() if _commands(mine) and not bodies(mine)]
    for name in commanded:
        if not any(text.startswith(f"{name}: ") for text in team.ambiguous):
            team.ambiguous.append(
                f"{name}: has commands and no poses; is it the same as another robot, or were its poses not recorded?"
            )
    for name, mine in team.robots.items():
        if commanded and any(one.role == "odometry" for one in mine) and not _commands(mine):
            team.ambiguous.append(
                f"{name}: has odometry and no commands, while {', '.join(commanded)} has commands only; "
                "it is unknown whether they are the same"
            )


def _join_bodies(team: RobotTopics) -> None:
    """Join a body with poses only and a robot with commands or odometry, if the pair correlates uniquely.

    Unique in both directions: otherwise two robots with similar motion could get each other's body.
    """
    seen = [name for name, mine in team.robots.items() if {one.role for one in mine} <= {"pose", "setpoint"}]
    others = [name for name in team.robots if name not in seen]
    unlocated = [name for name in others if not any(one.role == "pose" and one.rank == 0 for one in team.robots[name])]
    alike = {(name, body): _likeness(team.robots[name], team.robots[body]) for name in others for body in seen}
    sure = {
        name: body
        for name in unlocated
        for body in seen
        if alike[name, body] >= CLEAR and not _rivals(alike, name, body)
    }
    for name in unlocated:
        if name in sure:
            continue
        left = [body for body in seen if body not in sure.values() and alike[name, body] >= CLEAR]
        if left:
            best = max(left, key=lambda body: alike[name, body])
            rivals = ", ".join(
                f"{one} as {other} does ({score:.2f})" for (one, other), score in _rivals(alike, name, best).items()
            )
            team.ambiguous.append(
                f"{name}: {best} moves as {name} does ({alike[name, best]:.2f}), but also {rivals}; "
                "its pose is not given"
            )
    for name, body in sure.items():
        for candidate in team.robots.pop(body):
            candidate.note = f"{body} moves as {name} does (correlation {alike[name, body]:.2f})"
            team.robots[name].append(candidate)
        seen.remove(body)
    for name in seen:
        motions = [motion for one in team.robots[name] if (motion := one.motion)]
        if len(team.robots) > 1 and not any(motion.lively() for motion in motions):
            team.left.append(f"{names_of(team.robots.pop(name))} (a body that never moves)")


def _likeness(first: Sequence[Candidate], second: Sequence[Candidate]) -> float:
    """Return the highest correlation between the motions of two robots or bodies."""
    return max(
        (match.score for one in _sure(first) for other in _sure(second) if (match := match_of(one, other))), default=0.0
    )


def _rivals(alike: Mapping[tuple[str, str], float], name: str, body: str) -> dict[tuple[str, str], float]:
    """Return the pairs that share one member with this pair and correlate nearly as well or better."""
    return {
        (other, one): score
        for (one, other), score in alike.items()
        if (one == name) != (other == body) and alike[name, body] - score < _APART
    }


def _followed(command: Candidate, candidates: Sequence[Candidate]) -> float:
    """Return the correlation of a motion with a velocity; 0 if the motion does not come after it."""
    matches = [match for one in bodies(candidates) if (match := match_of(command, one))]
    return max((match.score for match in matches if match.lag_s >= _FOLLOWS_S), default=0.0)


def follows(match: MotionMatch | None) -> bool:
    """Return whether a motion follows a velocity with the delay and correlation of a command."""
    return match is not None and match.score >= CLEAR and match.lag_s >= _FOLLOWS_S


def match_of(first: Candidate, second: Candidate) -> MotionMatch | None:
    """Return the match of two candidates, a command first; between different bags at any lag."""
    if first.role != "command" and second.role == "command":
        first, second = second, first
    one, other = first.motion, second.motion
    if one is None or other is None:
        return None
    lags = LAGS_S if first.role == "command" else (-1.0, 1.0)
    if first.bag != second.bag:
        lags = None
    kinds = (IN_BODY, ANY_FRAME) if first.role == "command" else (ANY_FRAME,)
    matches = [match for names in kinds if (match := follow(one, other, lags, names))]
    return max(matches, key=lambda match: match.score, default=None)


def _moving(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in candidates if one.role in ("pose", "odometry", "command")]


def _sure(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in _moving(candidates) if not one.unsure]


def bodies(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with poses."""
    return [one for one in candidates if one.role in ("pose", "odometry")]


def _commands(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in candidates if one.role == "command"]


def names_of(candidates: Sequence[Candidate]) -> str:
    """Return the topics of candidates as text."""
    return ", ".join(dict.fromkeys(f"{one.topic} of {one.child}" if one.child else one.topic for one in candidates))
