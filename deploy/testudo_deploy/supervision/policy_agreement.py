"""Whether the processes that must agree with a robot use its policy file; pure, on one injected clock."""

from collections.abc import Collection

from testudo_deploy.contract.policy_change import PolicyInUse

SAID_EVERY_S = 1.0
"""Each process of a fleet says this often which policy file it uses."""
_FORGOTTEN_S = 3.5  # a process that was silent for this time has ended, and says nothing any more
_SHOWN = 8  # digits of a hash in a sentence


class PolicyAgreement:
    """What the other processes of a fleet said last; a robot is not armed or started beside another policy file."""

    def __init__(self, process: str, policy_sha256: str, needed: Collection[str], *, strict: bool) -> None:
        """Begin.

        Args:
            process: the robot's own process, such as `r0/policy`.
            policy_sha256: the policy file that it uses.
            needed: the processes that must use it, too; of others only the task node and the recorder count.
            strict: they must say it, as after a change; otherwise they only must not say another one, as after a start,
                where each process has checked the hash of the fleet file.
        """
        self._own, self._sha256, self._needed, self._strict = process, policy_sha256, frozenset(needed), strict
        self._said: dict[str, tuple[str, float]] = {}

    def hear(self, said: PolicyInUse, now_s: float) -> None:
        """Take what a process says."""
        if said.process in self._needed or said.process == "recorder":
            self._said[said.process] = (said.policy_sha256, now_s)

    def reason(self, now_s: float, lost: Collection[str] = ()) -> str:
        """Return why the robot may not be armed or started, ``code: details``; empty if all agree.

        ``lost`` are robots that an operator declared lost: nobody waits for them.
        """
        said = {name: sha256 for name, (sha256, heard_s) in self._said.items() if now_s - heard_s <= _FORGOTTEN_S}
        others = {name: sha256 for name, sha256 in said.items() if sha256 != self._sha256}
        if others:
            name = min(others)
            found = f"{name} uses {others[name][:_SHOWN]}" if others[name] else f"{name} has none"
            return f"policy_differs: {found}, {self._own} {self._sha256[:_SHOWN]}"
        silent = sorted(name for name in self._needed - set(said) if name.partition("/")[0] not in lost)
        return f"policy_differs: {', '.join(silent)} said nothing yet" if self._strict and silent else ""
