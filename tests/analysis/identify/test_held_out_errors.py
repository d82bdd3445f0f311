"""A residual model finds what the motion model lacks, and is said to be worth nothing where nothing is lacking."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_analysis.commands.identify import identification_tables
from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, HeldOut, Quantiles
from testudo_analysis.identify.estimation.rollout_windows import SegmentSettings, cut
from testudo_analysis.identify.held_out_errors import (
    ENDING,
    FEATURES,
    ResidualModel,
    fit_residual,
    residual_errors,
    worth,
)
from testudo_analysis.identify.identify_run import identify_run
from testudo_bench.synthetic_data.synthetic_runs import Truth, synthetic_run
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare

SPEC = load_robot("irobot_create")
KEYS = ("dynamics.command_delay", "dynamics.velocity_lag")


@pytest.fixture(scope="module")
def driven():
    """Return stretches of the motion model itself with little noise, its parameters, and which stretches come first."""
    truth = Truth(SPEC.velocity_lag_s, SPEC.command_delay_s, 1.0, noise_m=2e-4, noise_rad=5e-4)
    robots = prepare(synthetic_run(SPEC, truth, robots=1, duration_s=60)).robots
    cutting = SegmentSettings.create(SPEC, 60.0)
    stretches = cut(robots, SPEC, cutting)
    values = np.tile([truth.command_delay_s, truth.velocity_lag_s], (len(stretches), 1))
    return stretches, cutting, values, np.arange(len(stretches)) < len(stretches) // 2


def errors_on_the_rest(stretches, cutting, values, train):
    """Return median position errors on the stretches that were not fitted, without and with a residual model."""
    roller = BatchedRollout(SPEC, KEYS, stretches, cutting)
    found = fit_residual(roller, values, np.full((3, 3), 1e-3), train)
    both = roller.errors(values), residual_errors(roller, values, found)
    seen = stretches.valid & ~train[:, None]
    return [float(np.median(np.hypot(errors[:, 0], errors[:, 1])[seen])) for errors in both]


def test_motion_that_the_model_lacks_is_found_and_predicted_where_it_was_not_fitted(driven):
    stretches, cutting, values, train = driven
    weights = np.zeros((3, len(FEATURES)))
    weights[1, FEATURES.index("speed by turn rate")] = 0.2  # pushed outwards in turns
    weights[2, FEATURES.index("speed")] = 0.1  # pulls to one side
    roller = BatchedRollout(SPEC, KEYS, stretches, cutting)
    more = residual_errors(roller, values, ResidualModel(weights)) - residual_errors(
        roller, values, ResidualModel(0 * weights)
    )
    lacking = replace(stretches, moved=stretches.moved + more[:, :2], turned=stretches.turned + more[:, 2])
    without, with_it = errors_on_the_rest(lacking, cutting, values, train)
    assert without > 5e-3
    assert with_it < 0.2 * without


def test_a_zero_residual_is_the_motion_model(driven):
    stretches, cutting, values, _ = driven
    roller = BatchedRollout(SPEC, KEYS, stretches, cutting)
    zero = residual_errors(roller, values, ResidualModel(np.zeros((3, len(FEATURES)))))
    np.testing.assert_allclose(zero, roller.errors(values), atol=1e-4)


def test_noise_alone_is_not_predicted(driven):
    without, with_it = errors_on_the_rest(*driven)
    assert with_it > 0.8 * without


def test_it_has_to_lower_median_and_p90_of_every_split():
    def rows(split, with_it):
        same = Quantiles(1.0, 1.0, 9)
        return [
            HeldOut("r0", 2.0, "position", "m", same, same, Quantiles(0.010, 0.02, 9), split),
            HeldOut("r0", 2.0, f"position{ENDING}", "m", same, same, Quantiles(*with_it, 9), split),
        ]

    good, bad = (0.0079, 0.0159), (0.0079, 0.0165)
    assert worth((*rows(HALF, good), *rows(ROBOTS, good))).helps
    found = worth((*rows(HALF, good), *rows(ROBOTS, bad)))
    assert not found.helps
    assert found.shares[ROBOTS] == pytest.approx((0.21, 0.175))
    assert not worth(()).helps


def test_the_verdict_is_told_and_nothing_uses_it():
    truth = Truth(0.14, 0.11, 1.04, 0.95, 1.2)
    found, _ = identify_run(
        prepare(synthetic_run(SPEC, truth, robots=1, duration_s=40)), hold_out=(HALF,), residual=True
    )
    told = found.facts["residual"]
    assert not told["helps"]
    assert not told["used"]
    assert max(told["lower_by"][HALF]) < 0.2
    assert any("not used" in str(table.title) for table in identification_tables(found))
    with pytest.raises(TestudoError, match="--residual: found a differential_drive and 0 kinds"):
        identify_run(prepare(synthetic_run(SPEC, truth, robots=1, duration_s=40)), hold_out=(), residual=True)
