"""What callbacks raise is told, each callback for itself, and the node lives on."""

from functools import partial
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")


class Logger:
    """Drops what one place in the code says too often, as that of `rclpy` does."""

    def __init__(self):
        self.said = []

    def warning(self, text, **throttle):
        if not (throttle and self.said):
            self.said.append(text)


def test_a_failing_callback_neither_hides_another_one_nor_floods_the_log():
    from testudo_nodes.common.node_runner import logging_errors

    logger = Logger()
    node = SimpleNamespace(get_logger=lambda: logger)

    def one(_):
        raise ValueError("bad message")

    def other(_):
        raise KeyError("bad row")

    first, second = logging_errors(node, one), logging_errors(node, other)
    for _ in range(3):
        first(0)
        second(0)
    assert logger.said == ["one: ValueError: bad message", "other: KeyError: 'bad row'"]


def test_errors_of_a_partial_are_logged_and_do_not_end_the_node():
    from testudo_nodes.common.node_runner import logging_errors

    def tick(*, on_pose):
        raise ValueError("no pose")

    logger = Logger()
    logging_errors(SimpleNamespace(get_logger=lambda: logger), partial(tick, on_pose=True))()
    assert logger.said == ["tick: ValueError: no pose"]
