"""A run's parts for fine-tuning: as for training, but the learner goes on from a policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from testudo_policies.improve.fine_tuning import FineTuner, RecordedTransitions
from testudo_policies.improve.initial_policy import InitialPolicy
from testudo_policies.learning.builder import TrainingComponents


@dataclass(frozen=True)
class FineTuningComponents(TrainingComponents):
    """See `TrainingComponents`."""

    beginning: InitialPolicy | None = None
    recorded: RecordedTransitions | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, workshop: TrainingComponents, beginning: InitialPolicy, recorded: RecordedTransitions | None = None
    ) -> FineTuningComponents:
        """Return a workshop that goes on from ``beginning``, with recorded transitions if there are any."""
        return cls(
            workshop.config, workshop.spec, workshop.shield, workshop.environment, workshop.agent, beginning, recorded
        )

    @property
    def ppo(self) -> FineTuner:
        """Return the learner."""
        return FineTuner(
            self.config,
            self.agent,
            self.environment,
            begin=self.beginning.parameters,
            warm_up=min(self.beginning.warm_up, self.config.updates // 3),
            recorded=self.recorded,
        )
