"""Policies that ship: a bare name such as `discovery` stands for the shipped file of that scenario.

They are registered as entry points of the group `testudo.policies`: each value is a package with one folder for each
policy, which holds the policy file, a fleet file that runs it and its model card.
"""

import functools
from importlib import resources
from pathlib import Path

from testudo_deploy.contract.policy_archive import is_archived
from testudo_deploy.contract.policy_header import ArtefactError
from testudo_deploy.files.registered import entry_points

GROUP = "testudo.policies"
POLICY_FILE, FLEET_FILE, CARD_FILE = "policy.onnx", "fleet.yaml", "card.json"


@functools.cache
def shipped_policies() -> dict[str, Path]:
    """Return the folder of each shipped policy by its name."""
    values = dict.fromkeys(point.value for point in entry_points(group=GROUP))
    folders = sorted(Path(str(item)) for value in values for item in resources.files(value).iterdir())
    return {folder.name: folder for folder in folders if (folder / POLICY_FILE).is_file()}


def policy_file(given: Path) -> Path:
    """Return the path that a user gave for a policy, or for a bare name the shipped file of that name.

    What exists under that name here wins; a path with a folder or a suffix is returned as it is.

    Raises:
        ArtefactError: a bare name under which there is no file and no shipped policy.
    """
    is_bare = str(given) == given.name and not given.suffix
    if not is_bare or given.exists():
        return given
    shipped = shipped_policies()
    if given.name not in shipped:
        raise ArtefactError(f"{given}: no such file, and no policy of that name ships; {shipped_text()}")
    return shipped[given.name] / POLICY_FILE


def fleet_beside(policy: Path) -> Path:
    """Return the fleet file that `testudo export` writes beside a policy file; of one in an archive, beside that."""
    return policy.parent.with_name(f"fleet_{policy.stem}.yaml") if is_archived(policy) else policy.with_name(FLEET_FILE)


def shipped_text() -> str:
    """Return what ships, as the end of a sentence."""
    return f"those that ship are {', '.join(shipped_policies()) or 'none'}"
