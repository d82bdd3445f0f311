"""What callbacks raise is told, each callback for itself, and the node lives on."""

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


def test_a_callback_that_always_fails_hides_no_other_one_and_floods_nobody():
    from testudo_nodes.common.node_runner import guarded

    logger = Logger()
    node = SimpleNamespace(get_logger=lambda: logger)

    def one(_):
        raise ValueError("bad message")

    def other(_):
        raise KeyError("bad row")

    first, second = guarded(node, one), guarded(node, other)
    for _ in range(3):
        first(0)
        second(0)
    assert logger.said == ["one: ValueError: bad message", "other: KeyError: 'bad row'"]
