"""Equal rows are compared at once; that must not excuse what is not finite, nor change any number."""

import math

import pytest

from testudo_analysis.replay.link_findings import deviation
from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.contract.messages import TaskMessage
from testudo_deploy.contract.task_values import arrays_for, numbers_for, packed

ROWS = [
    ((1.0, -2.0), 0.0),
    ((1e308, 1e308), 0.0),  # the sum is too large, the numbers are not
    ((1.0, math.inf), math.inf),
    ((math.inf, -math.inf), math.inf),
    ((1.0, math.nan), math.inf),
]


@pytest.mark.parametrize(("row", "error"), ROWS)
def test_equal_rows_deviate_only_where_a_number_is_not_finite(row, error):
    errors = FieldErrors({"x": ""})
    errors.add("x", 1, row, row)
    assert errors.checks()[0].error == error
    assert deviation(row, row) == error


@pytest.mark.parametrize("peers", [("a", "b", "c"), ("c", "a", "b")])
def test_the_numbers_of_a_task_message_are_those_of_its_arrays(peers):
    signals = [
        Signal("bodies", (2, 3), "m", "world", None),
        Signal("near", (NEIGHBOURS, 2), "m", "world", None),
        Signal("level", (), "", "", None),
    ]
    values = {"near": tuple(map(float, range(6))), "level": (7.0,), "bodies": tuple(map(float, range(10, 16)))}
    message = TaskMessage("r", "c", "e", 1, 2.0, 0.0, ("e", 1.0, 3), ("a", "b", "c"), values)
    expected = {name: packed(array) for name, array in arrays_for(signals, message, peers).items()}
    assert numbers_for(signals, message, peers) == expected
