"""What a running fleet really speaks on is what its policy file permits, both ways."""

import time
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import WATCHERS, plan
from testudo_deploy.launch.process_interfaces import process_interfaces

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
PATIENCE_S = 80.0


@dataclass
class Running:
    fleet: object
    plan: tuple
    processes: FleetProcesses
    node: object
    executor: object


@contextmanager
def started(folder, **options):
    """Start two robots with all that a plan can start, and look at the markers."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from visualization_msgs.msg import MarkerArray

    from testudo_deploy.launch.topic_names import MARKERS_TOPIC

    fleet = make_tiny_fleet(folder, 2, start_x=0.0, goal_x=50.0, walls=False)
    planned = plan(fleet, run_folder=folder / "run", duration_s=600.0, watch=WATCHERS, **options)
    processes = FleetProcesses(planned)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in processes.environment().items():
            if key.startswith(("ROS_A", "ROS_D", "FAST")):
                patch.setenv(key, value)
        context = rclpy.Context()
        rclpy.init(context=context, domain_id=processes.domain_id)
        node = rclpy.create_node("viewer", context=context)
        node.create_subscription(MarkerArray, MARKERS_TOPIC, lambda _: None, 1)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        with processes:
            yield Running(fleet, planned, processes, node, executor)
        context.try_shutdown()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return a fleet in real time."""
    with started(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


def spoken(node, process):
    """Return what a node says of itself in the graph, as in `Interfaces`."""
    name, namespace = process.name, f"/{process.namespace}"
    asked = {
        "publishes": node.get_publisher_names_and_types_by_node,
        "subscribes": node.get_subscriber_names_and_types_by_node,
        "serves": node.get_service_names_and_types_by_node,
        "calls": node.get_client_names_and_types_by_node,
    }
    return {rule: {topic for topic, _ in ask(name, namespace)} for rule, ask in asked.items()}


def difference(node, process, fleet):
    """Return what a node speaks on without being permitted, and what it is permitted without speaking on it."""
    from rclpy.node import NodeNameNonExistentError

    may = process_interfaces(process, fleet)
    try:
        found = spoken(node, process)
    except NodeNameNonExistentError:
        return {"not there": {process.label}}
    wrong = {}
    for rule, names in found.items():
        permitted = getattr(may, rule)
        wrong[f"not permitted: {rule}"] = {
            name for name in names if not any(fnmatchcase(name, pattern) for pattern in permitted)
        }
        wrong[f"permitted in vain: {rule}"] = permitted - names - may.optional
    return {what: names for what, names in wrong.items() if names}


def eventually(find):
    """Return what ``find()`` returns once that is empty, or at last."""
    end_s = time.monotonic() + PATIENCE_S
    while (found := find()) and time.monotonic() < end_s:
        time.sleep(0.3)
    return found


def differences(running):
    """Return the difference of each node that has one."""
    each = {item.label: difference(running.node, item, running.fleet) for item in running.plan}
    return {label: found for label, found in each.items() if found}


def test_each_node_speaks_on_all_that_it_may_and_on_nothing_else(running):
    assert not eventually(lambda: differences(running))


@pytest.mark.slow
def test_so_it_does_in_lock_step(tmp_path):
    with started(tmp_path, lock_step=True) as running:
        assert not eventually(lambda: differences(running))


def test_what_markers_hear_while_somebody_looks_is_exactly_what_they_may(running):
    (markers,) = [item for item in running.plan if item.name == "markers"]
    may = process_interfaces(markers, running.fleet)
    assert not eventually(lambda: may.subscribes - {"/clock"} ^ spoken(running.node, markers)["subscribes"])


def parameters(running, process):
    """Return which parameters of a node are read-only, what it answers to a new `use_sim_time`, and the value after."""
    from rclpy.parameter import Parameter
    from rclpy.parameter_client import AsyncParameterClient

    client = AsyncParameterClient(running.node, f"/{process.label}")
    assert client.wait_for_services(timeout_sec=PATIENCE_S)
    answers = []
    for ask in (
        client.list_parameters,
        lambda: client.describe_parameters(answers[0].result.names),
        lambda: client.set_parameters([Parameter("use_sim_time", value=True)]),
        lambda: client.get_parameters(["use_sim_time"]),
    ):
        future = ask()
        running.executor.spin_until_future_complete(future, timeout_sec=PATIENCE_S)
        answers.append(future.result())
    _, described, (result,), (kept,) = (answers[0], answers[1].descriptors, answers[2].results, answers[3].values)
    return {item.name: item.read_only for item in described}, result, kept.bool_value


def test_no_parameter_can_be_changed_while_the_fleet_runs(running):
    for process in running.plan:
        found, answer, sim_time = parameters(running, process)
        assert "fleet" in found, process.label
        assert {name for name, read_only in found.items() if not read_only} <= {"use_sim_time"}, process.label
        assert not answer.successful, process.label
        assert answer.reason == "use_sim_time: parameters are read once, at the start"
        assert not sim_time


def test_with_security_on_nothing_starts_without_valid_keys(running, tmp_path):
    from testudo_nodes.common.node_runner import REFUSED

    # files that are there but no keys: what is refused by a ROS 2 with security is refused by one without it, too
    for process in running.plan:
        (tmp_path / "enclaves/testudo" / process.label).mkdir(parents=True, exist_ok=True)
    guard = next(item for item in running.plan if item.name == "guard")
    secure = {"ROS_SECURITY_ENABLE": "true", "ROS_SECURITY_STRATEGY": "Enforce", "ROS_SECURITY_KEYSTORE": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        for key, value in secure.items():
            patch.setenv(key, value)
        with FleetProcesses([guard]) as processes:
            assert not eventually(lambda: processes.exit_status(guard.label) is None)
            assert processes.exit_status(guard.label) == REFUSED
