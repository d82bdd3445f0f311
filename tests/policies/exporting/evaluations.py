"""Figures of an evaluation that never ran."""

from testudo_policies.evaluation.evaluation import Evaluation

EVALUATION = Evaluation(
    team_size=4, episodes=10, first_seed=0, horizon_s=40.0, crossing_share=0.5, success=0.0,
    success_low=0.0, success_high=0.3, contacts=0, episodes_with_contact=0, contact_rate_high=0.3,
    minimum_separation_m=0.2, separation_p1_m=0.2, intervention_rate=0.1, brake_rate=0.0,
    deadlocks=10, time_to_success_s=float("nan"),
)  # fmt: skip
