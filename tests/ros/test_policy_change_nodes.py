"""The nodes of a fleet in one process: what each step of a change of the policy does to them, without any timing."""

from importlib.util import find_spec

import pytest
from tests.ros.order_stage import write_order_fleet
from tests.sim.online_task.task_fleet import write_policy

from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_change import BEGIN, CHECK, RECORD, REST, STEPS, STOP, PolicyChange
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.supervision.modes import Mode

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(900),
]


class Nodes:
    """Task node, recorder, and guard and policy of the first robot; each takes steps by call instead of by message."""

    def __init__(self, fleet, run_folder):
        import rclpy

        from testudo_nodes.robot.guard_node import GuardNode
        from testudo_nodes.robot.policy_node import PolicyNode
        from testudo_nodes.station.recorder_node import RecorderNode
        from testudo_nodes.station.task_node import TaskNode

        values = {"fleet": fleet.file, "policy": fleet.policy, "robot": "r0", "run_folder": run_folder}
        words = [word for key, value in values.items() for word in ("-p", f"{key}:={value}")]
        rclpy.init(args=["--ros-args", *words, "-p", "backend:=sim", "-p", "configure:=true"])
        self.stop = rclpy.task.Future()
        self.recorder, self.task = RecorderNode(self.stop), TaskNode(self.stop)
        self.guard, self.policy = GuardNode(self.stop), PolicyNode(self.stop)
        self.parts = {
            "guard": self.guard._exchange._topics,
            "policy": self.policy._exchange._topics,
            "task": self.task._policy,
            "recorder": self.recorder._policy,
        }

    def close(self):
        import rclpy

        for node in (self.policy, self.guard, self.task, self.recorder):
            node.close()
            node.destroy_node()
        rclpy.try_shutdown()

    def take(self, step, change, file, sha256=""):
        """Let the processes of a step take it, and return what each says."""
        from std_msgs.msg import String

        digest = sha256 or PolicyArtefact.load(file).sha256
        message = String(data=PolicyChange(change, step, str(file), digest).encode().decode())
        for kind in STEPS[step]:
            self.parts[kind]._on_change(message)
        return {kind: self.parts[kind]._answers[step] for kind in STEPS[step]}

    def order(self, name, place):
        """Let the task node take an order for r0, and return its answer."""
        from std_msgs.msg import String

        order = GoalOrder(name, {"r0": (place,)})
        self.task._taken._on_order(String(data=order.encode().decode()))
        return self.task._taken.orders.take(order)

    @property
    def in_use(self):
        """Return the hash of the policy file of each process."""
        return {kind: part._in_use()[0] for kind, part in self.parts.items()}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "99")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    fleet = write_order_fleet(tmp_path, {"r0": (-1.2, 0.4), "r1": (-1.2, -0.4)})
    arena = PolicyArtefact.load(fleet.policy).contract.arena
    write_policy(tmp_path / "other.onnx", "swap", fleet.robots[0].spec, arena=arena, speed_share=0.6)
    write_policy(tmp_path / "elsewhere.onnx", "swap", fleet.robots[0].spec)  # in an arena of its own
    made = Nodes(fleet, tmp_path / "run")
    yield made
    made.close()


def test_every_process_takes_each_step_and_refuses_what_does_not_fit(nodes, tmp_path):
    first, other = tmp_path / "policy.onnx", tmp_path / "other.onnx"
    old, new = PolicyArtefact.load(first).sha256, PolicyArtefact.load(other).sha256
    assert set(nodes.in_use.values()) == {old}
    supervisor = nodes.policy._robot.supervisor

    for mode, says in ((Mode.ACTIVE, "`testudo pause r0` first"), (Mode.STOPPED, "release the emergency stop")):
        supervisor.mode = mode
        accepted, sentence = nodes.take(REST, str(mode), other)["policy"]
        assert not accepted
        assert f"r0/policy: found the robot {mode}, expected it idle or armed: " in sentence
        assert says in sentence
    supervisor.mode = Mode.IDLE
    assert not nodes.order("far", (9.0, 0.4)).accepted
    assert nodes.order("near", (1.0, 0.4)).accepted
    for kind, (accepted, sentence) in nodes.take(CHECK, "arena", tmp_path / "elsewhere.onnx").items():
        assert not accepted, kind
        assert "contract.arena: found Arena(" in sentence
    for accepted, sentence in nodes.take(CHECK, "hash", other, "f" * 64).values():
        assert not accepted
        assert "found no file with the sha256 ffff" in sentence
    refused = nodes.take(BEGIN, "early", other)
    assert "expected unconfigured: it was not told to stop first" in refused["policy"][1]
    assert "has not prepared this policy" in refused["task"][1]
    assert nodes.in_use == {"guard": new, "policy": old, "task": old, "recorder": old}  # a guard looks the same with it

    for step in (REST, CHECK, STOP):
        answers = nodes.take(step, "whole", other)
        assert all(accepted for accepted, _ in answers.values()), answers
    assert nodes.policy.lifecycle == "unconfigured"
    assert nodes.in_use["policy"] == ""
    for step in (RECORD, BEGIN):
        answers = nodes.take(step, "whole", other)
        assert all(accepted for accepted, _ in answers.values()), answers
    assert set(nodes.in_use.values()) == {new}
    assert nodes.policy.lifecycle == "inactive"
    robot = nodes.policy._robot
    assert (robot.supervisor.mode, robot.supervisor.by_hand) == (Mode.IDLE, True)  # only an operator arms it
    assert "policy_differs: r0/guard, r1/policy, task said nothing yet" in robot.supervisor._policies
    assert nodes.task._live.scoring.scenario.name == "swap"
    assert nodes.task._live.goals_world["r0"] == pytest.approx((1.0, 0.4))
    assert nodes.order("next", (0.5, 0.4)).accepted  # the task of the new policy takes it
    assert nodes.task._live.goals_world["r0"] == pytest.approx((0.5, 0.4))
    assert load_fleet(tmp_path / "run_2" / "fleet.yaml").policy_sha256 == new
    assert load_fleet(tmp_path / "run" / "fleet.yaml").policy_sha256 == old
    assert {"obligations.json", "policy.onnx"} <= {file.name for file in (tmp_path / "run_2").iterdir()}

    for step in STEPS:  # and back
        answers = nodes.take(step, "back", first)
        assert all(accepted for accepted, _ in answers.values()), answers
    assert set(nodes.in_use.values()) == {old}
    assert (tmp_path / "run_3").is_dir()
