"""The one arena that stands for a fleet of several teams: in the plant, and in what is shown."""

from __future__ import annotations

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.shield.arena import Arena


def world_arena(fleet: Fleet) -> Arena | None:
    """Return the arena of a fleet's policy files; of teams on the ground and in the air that in space.

    Raises:
        TestudoError: a policy file is refused, or the teams' walls stand at different places: there is one world.
    """
    arenas = [PolicyArtefact.load(team.policy, sha256=team.policy_sha256).contract.arena for team in fleet.teams]
    if len(arenas) == 1:
        return arenas[0]
    walls = [None if arena is None else (tuple(arena.low_world[:2]), tuple(arena.high_world[:2])) for arena in arenas]
    if len(set(walls)) > 1 or any(arena is not None and arena.obstacles for arena in arenas):
        raise FleetError(
            f"{fleet.file}: policies: found walls {' and '.join(map(str, walls))}, expected "
            "the same in x and y, and no obstacles: the plant is one world"
        )
    return max(arenas, key=lambda arena: 0 if arena is None else len(arena.low_world))
