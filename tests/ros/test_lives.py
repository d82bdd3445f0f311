"""The managed node through several lives, asked by the services that `ros2 lifecycle` calls."""

import importlib.util
import time

import pytest

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]
LIVES = 4


class Operator:
    """Asks the policy's node of a bench for transitions."""

    def __init__(self, bench):
        from lifecycle_msgs.msg import Transition
        from lifecycle_msgs.srv import ChangeState, GetState
        from std_msgs.msg import UInt8MultiArray

        from testudo_deploy.contract.messages import PeerMessage
        from testudo_nodes.common.messages import envelope_bytes
        from testudo_nodes.common.qos import REQUESTED

        self.watch, self.epochs = bench.observer, []
        self._id, self._change, self._get = Transition, ChangeState, GetState
        node = self.watch.node

        def hear(message):
            epoch = PeerMessage.decode(envelope_bytes(message)).epoch
            if epoch not in self.epochs:
                self.epochs.append(epoch)

        node.create_subscription(UInt8MultiArray, "/r0/peer_state", hear, REQUESTED["peer_state"])
        self._changer = node.create_client(ChangeState, "/r0/policy/change_state")
        self._getter = node.create_client(GetState, "/r0/policy/get_state")

    def ask(self, name):
        """Return whether the node made a transition."""
        number = getattr(self._id, f"TRANSITION_{name}")
        return self._answer(self._changer, self._change.Request(transition=self._id(id=number))).success

    def state(self):
        """Return the lifecycle state."""
        return self._answer(self._getter, self._get.Request()).current_state.label

    def _answer(self, client, request):
        future = client.call_async(request)
        self.watch.wait(future.done, "no answer", 10.0)
        return future.result()


def test_a_robot_lives_several_lives_and_drives_in_each(make_bench):
    bench = make_bench()
    operator, watch = Operator(bench), bench.observer
    for life in range(1, LIVES + 1):
        watch.bring_up()
        watch.wait_until_driving()
        assert operator.state() == "active"
        assert len(operator.epochs) == life  # peers know a new life by its epoch
        assert not operator.ask("CONFIGURE")  # not from here
        assert operator.state() == "active"

        began_s = time.monotonic()
        assert operator.ask("DEACTIVATE")
        assert operator.state() == "inactive"
        watch.wait_until_at_rest(began_s)
        watch.wait(lambda: watch.heard.mode == "idle", "it did not say idle")

        assert operator.ask("CLEANUP")
        assert operator.state() == "unconfigured"
        assert not operator.ask("ACTIVATE")
        assert operator.state() == "unconfigured"
        gone_s = time.monotonic()
        watch.wait(lambda gone_s=gone_s: time.monotonic() > gone_s + 0.5, "")
        assert not any(any(reading.command) for at_s, reading in watch.heard.sent if at_s > gone_s)

        watch.heard.mode = ""
        assert operator.ask("CONFIGURE")
        assert operator.state() == "inactive"
    assert operator.ask("INACTIVE_SHUTDOWN")
    assert operator.state() == "finalized"
    assert not operator.ask("CONFIGURE")
