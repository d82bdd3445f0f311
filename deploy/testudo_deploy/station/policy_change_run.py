"""A change of the policy of a running fleet, step by step, as the operator's program leads it; pure."""

from collections.abc import Collection

from testudo_deploy.contract.policy_change import BEGIN, STEPS, STOP, PolicyChange, PolicyInUse, in_use_topic

RECORDER = "recorder"


def needed_processes(robots: Collection[str]) -> tuple[str, ...]:
    """Return the processes without which there is no change; a recorder takes part if there is one."""
    return (*(f"{robot}/{kind}" for robot in robots for kind in ("guard", "policy")), "task")


def in_use_topics(robots: Collection[str]) -> tuple[str, ...]:
    """Return the topics on which the processes of a fleet say which policy file they use."""
    return tuple(map(in_use_topic, (*needed_processes(robots), RECORDER)))


class PolicyChangeRun:
    """Sends a step until every process that it is for has answered; ends at the first refusal."""

    def __init__(self, change: str, policy: str, policy_sha256: str, robots: Collection[str]) -> None:
        """Begin with the question whether all robots rest; see `PolicyChange` for the values."""
        self._change, self._policy, self._sha256 = change, policy, policy_sha256
        self._needed, self._records = needed_processes(robots), False
        self._left = list(STEPS)
        self._answers: dict[tuple[str, str], PolicyInUse] = {}

    def hear(self, said: PolicyInUse) -> None:
        """Take what a process says, answer or not."""
        self._records |= said.process == RECORDER
        if said.change == self._change and said.step in STEPS:
            self._answers[said.step, said.process] = said
        while self._left and not self.refusals and not self.silent:
            self._left.pop(0)

    @property
    def done(self) -> bool:
        """Return whether all steps are accepted by all."""
        return not self._left

    @property
    def message(self) -> PolicyChange:
        """Return what to send now."""
        return PolicyChange(self._change, self._left[0] if self._left else BEGIN, self._policy, self._sha256)

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the processes that have not answered the present step."""
        if not self._left:
            return ()
        step = self._left[0]
        names = (*self._needed, *([RECORDER] if self._records else []))
        asked = [name for name in names if name.rpartition("/")[2] in STEPS[step]]
        return tuple(name for name in asked if (step, name) not in self._answers)

    @property
    def refusals(self) -> dict[str, str]:
        """Return the sentences of the processes that refuse, by name."""
        return {name: said.sentence for (_, name), said in self._answers.items() if not said.accepted}

    @property
    def sentences(self) -> dict[str, str]:
        """Return what each process said last, by name."""
        return {name: said.sentence for (_, name), said in self._answers.items()}

    @property
    def remark(self) -> str:
        """Return what the operator must know of an unfinished change; empty of a finished one."""
        if self.done:
            return ""
        why = "refused" if self.refusals else f"no answer from {', '.join(self.silent)}"
        stopped = any(step == STOP and said.accepted for (step, _), said in self._answers.items())
        if not stopped and self._left[0] != STOP:
            return f"{why}: nothing was changed"
        return f"{why}: the change is not complete, and no robot can be armed; correct it, and give the command again"
