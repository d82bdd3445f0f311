"""Every refusal and every brake is on `/diagnostics`, with a stable code and one sentence, over real DDS."""

from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.station.fleet_status import FleetStatus

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
PATIENCE_S = 60.0


class Diagnosed:
    """Hears `/diagnostics` of a few processes of a fleet."""

    def __init__(self, listener):
        from diagnostic_msgs.msg import DiagnosticArray

        self._listener, self._heard, self.node = listener, {}, listener.node
        listener.node.create_subscription(DiagnosticArray, "/diagnostics", self._take, 10)

    def _take(self, message):
        for status in message.status:
            code = next((pair.value for pair in status.values if pair.key == "code"), None)
            self._heard[status.name, code] = status.message

    def sentence(self, name, code):
        """Wait until somebody says this code, and return the sentence with it."""
        self._listener.listen(PATIENCE_S, enough=lambda: (name, code) in self._heard)
        assert (name, code) in self._heard, self._heard
        return self._heard[name, code]

    def press(self, topic, **quality):
        """Press an emergency stop by a button of this quality of service, again and again until a guard says so."""
        from rclpy.qos import QoSProfile
        from std_msgs.msg import Bool

        button = self._listener.node.create_publisher(Bool, topic, QoSProfile(depth=1, **quality))
        for _ in range(round(PATIENCE_S / 0.2)):
            button.publish(Bool(data=True))
            self._listener.listen(0.2)
            if ("r0: guard", "estop") in self._heard:
                return True
        return False

    def ask(self, service):
        """Ask a service of the type Trigger."""
        from std_srvs.srv import Trigger

        client = self._listener.node.create_client(Trigger, service)
        self._listener.listen(PATIENCE_S, enough=client.service_is_ready)
        future = client.call_async(Trigger.Request())
        self._listener.listen(PATIENCE_S, enough=future.done)
        return future.result()


@pytest.fixture
def diagnosed(tmp_path, monkeypatch):
    """Return a starter of processes of a fleet of one robot, by label, and what is heard of them."""
    from testudo_nodes.station.status_listener import StatusListener

    fleet = make_tiny_fleet(tmp_path, 1)
    ends = []

    def start(*labels, **parameters):
        chosen = [
            replace(process, parameters=process.parameters | parameters)
            for process in plan(fleet, run_folder=None)
            if process.label in labels
        ]
        processes = FleetProcesses(chosen)
        for key, value in processes.environment().items():
            if key.startswith(("ROS_A", "FAST", "RMW")):
                monkeypatch.setenv(key, value)
        listener = StatusListener(FleetStatus(()), processes.domain_id, local=True).__enter__()
        heard = Diagnosed(listener)
        processes.__enter__()
        ends[:] = [processes, listener]
        return heard

    yield start
    for end in ends:
        end.__exit__(None, None, None)


def test_a_refused_request_and_a_braking_guard_are_diagnosed(diagnosed):
    heard = diagnosed("r0/guard", "r0/policy")  # without a plant there is no pose
    assert "no sound commands" in heard.sentence("r0: guard", "starting")
    assert "no pose has been heard" in heard.sentence("r0: policy", "no_pose")
    answer = heard.ask("/r0/policy/start")
    assert not answer.success
    assert heard.sentence("r0: request", "wrong_mode") == answer.message
    heard.ask("/r0/guard/estop")
    assert "emergency stop" in heard.sentence("r0: guard", "estop")


@pytest.mark.parametrize("topic", ["/estop", pytest.param("/r0/estop", marks=pytest.mark.slow)])
def test_a_button_that_publishes_best_effort_stops_a_robot(diagnosed, topic):
    """Buttons on small controllers do: a guard that asked for reliable would not hear them, and say nothing."""
    from rclpy.qos import ReliabilityPolicy

    heard = diagnosed("r0/guard")
    assert heard.press(topic, reliability=ReliabilityPolicy.BEST_EFFORT)


def test_a_robot_that_is_not_in_the_fleet_file_keeps_the_others_from_arming(diagnosed):
    """A robot is one that publishes; a subscriber alone is none."""
    from std_msgs.msg import UInt8MultiArray

    heard = diagnosed("r0/guard", "r0/policy", "plant")
    node = heard.node
    node.create_subscription(UInt8MultiArray, "/r8/peer_state", lambda _: None, 1)
    node.create_publisher(UInt8MultiArray, "/r9/peer_state", 1)
    assert "stranger: r9: a robot outside of the fleet file publishes here" in heard.sentence("r0: policy", "stranger")


def test_a_refused_configuration_is_diagnosed_before_its_process_ends(diagnosed, tmp_path):
    (tmp_path / "wrong.onnx").write_bytes(b"no policy")
    heard = diagnosed("r0/policy", policy=str(tmp_path / "wrong.onnx"))
    assert "wrong.onnx" in heard.sentence("r0: policy", "not_configured")
