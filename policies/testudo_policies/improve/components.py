"""A run's parts for fine-tuning: as for training, but the learner goes on from a policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from testudo_policies.improve.fine_tuning import Recorded, Tuner
from testudo_policies.improve.initial_policy import Beginning
from testudo_policies.learning.builder import Workshop


@dataclass(frozen=True)
class TuningWorkshop(Workshop):
    """See `Workshop`."""

    beginning: Beginning | None = None
    recorded: Recorded | None = field(default=None, repr=False)

    @classmethod
    def of(cls, workshop: Workshop, beginning: Beginning, recorded: Recorded | None = None) -> TuningWorkshop:
        """Return a workshop that goes on from ``beginning``, with recorded transitions if there are any."""
        return cls(
            workshop.config, workshop.spec, workshop.shield, workshop.environment, workshop.agent, beginning, recorded
        )

    @property
    def ppo(self) -> Tuner:
        """Return the learner."""
        return Tuner(
            self.config,
            self.agent,
            self.environment,
            begin=self.beginning.parameters,
            warm_up=min(self.beginning.warm_up, self.config.updates // 3),
            recorded=self.recorded,
        )
