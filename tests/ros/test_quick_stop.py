"""The quick start of `testudo estop`: it imports little, loses no press, and reads words as the whole program does."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import tyro

from testudo_deploy.station.stop_channel import FOLDER_VARIABLE, PRESS, StopChannel, channel_name
from testudo_hardware.errors import TestudoError
from testudo_nodes.station import estop, quick_stop
from testudo_nodes.station.quick_stop import StopOrder, order_of, stop

DOMAIN = 88
FLEET = "robots:\n  r0: {}\n  r1: {}\n"


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Leave this process its priority, which what it starts would inherit."""
    monkeypatch.setattr(quick_stop, "raise_priority", lambda _: None)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fleet.yaml"],
        ["a=b.yaml", "--local"],
        ["--release", "--domain", "7"],
        ["fleet.yaml", "--wait", "2.5", "--domain=7", "--json", "out.json", "--local"],
        ["--json=out.json", "fleet.yaml"],
    ],
)
def test_it_reads_the_words_as_the_whole_program_does(words, monkeypatch):
    monkeypatch.setattr(estop, "stop", lambda order: order)
    assert order_of(words) == tyro.cli(estop.estop, args=words)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--relese"],
        ["--no-local"],
        ["--wait"],
        ["--wait", "soon"],
        ["--domain", "1", "--domain", "2"],
        ["a", "b"],
        ["--local=1"],
    ],
)
def test_what_it_does_not_understand_is_left_to_the_whole_program(words):
    assert order_of(words) is None


def test_nothing_heavy_is_imported_before_the_press():
    heavy = "{'tyro', 'rich', 'numpy', 'rclpy', 'packaging', 'yaml', 'importlib.metadata', 'subprocess'}"
    code = f"import sys; import testudo_nodes.station.quick_stop; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


class Port:
    """In place of ROS: robots that confirm after the given number of presses; None: never."""

    def __init__(self, confirm_after=1):
        self.presses, self.left = 0, confirm_after

    def __call__(self, receiver, domain_id, *, local):
        self.receiver, self.presses = receiver, 1
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def expect(self, robots):
        pass

    def publish(self):
        self.presses += 1

    def listen(self, seconds, enough=lambda: False):
        time.sleep(0.01)
        code = "estop" if self.left is not None and self.presses > self.left else ""
        for robot in ("r0", "r1"):
            self.receiver.on_guard_status(robot, {"code": code}, 0.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "stop"))
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


@pytest.fixture
def port(monkeypatch):
    made = Port()
    monkeypatch.setattr(quick_stop, "open_port", made)
    return made


def resident(*, stopped):
    """A resident process whose guards have stopped, or never do."""
    robots = {name: {"stopped": stopped, "guard": "estop" if stopped else "", "after_s": 0.1} for name in ("r0", "r1")}
    pressed = []

    def ask(word):
        pressed.extend([word] if word == PRESS else [])
        return {"robots": robots}

    return StopChannel(channel_name(DOMAIN, local=True), press=pressed.append, ask=ask), pressed


def order(folder, **given):
    return StopOrder(folder / "fleet.yaml", domain=DOMAIN, local=True, **given)


def test_a_resident_process_with_all_confirmations_needs_no_ros(folder, port, capsys):
    channel, pressed = resident(stopped=True)
    with channel:
        assert stop(order(folder)) == 0
    assert (pressed, port.presses) == ([PRESS], 0)
    assert "all stopped" in capsys.readouterr().out


def test_a_resident_process_without_the_confirmations_is_not_relied_on(folder, port):
    channel, pressed = resident(stopped=False)
    with channel:
        assert stop(order(folder)) == 0
    assert pressed == [PRESS]
    assert port.presses > 0


def test_robots_that_do_not_confirm_are_named(folder, port, capsys):
    port.left = None
    assert stop(order(folder, wait=0.2)) == 1
    assert port.presses > 1
    assert "not confirmed by r0 (its guard did not brake for it), r1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("file", ["no.yaml", "broken.yaml"])
def test_a_fleet_file_that_cannot_be_read_costs_no_stop(folder, port, file):
    """A wrong name for the file: until now nothing was sent unless a resident process ran."""
    (folder / "broken.yaml").write_text("robots: [")
    with pytest.raises(TestudoError, match=r"yaml.*; the stop was sent to all robots within reach"):
        stop(order(folder, wait=0.5)._replace(fleet=folder / file))
    assert port.presses > 0


@pytest.mark.ros
@pytest.mark.parametrize("broken", [False, True])
def test_the_stop_reaches_a_guard_also_where_the_bindings_have_changed(broken, folder, monkeypatch):
    """In place of a guard: a node that confirms what it hears."""
    pytest.importorskip("rclpy")
    from testudo_deploy.launch.child_processes import free_domain_id
    from testudo_deploy.launch.ros_domain import LOOPBACK

    for key, value in LOOPBACK.items():
        monkeypatch.setenv(key, value)
    if broken:
        monkeypatch.setattr("testudo_nodes.station.stop_port._load_type_support", lambda kind: kind.changed)
    domain_id = free_domain_id()
    with subprocess.Popen([sys.executable, "-c", GUARD, str(domain_id)], stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout.readline() == "ready\n"
        only = Path(folder / "one.yaml")
        only.write_text("robots:\n  r0: {}\n")
        opened = []
        true_open = quick_stop.open_port
        monkeypatch.setattr(quick_stop, "open_port", lambda *a, **k: opened.append(true_open(*a, **k)) or opened[-1])
        try:
            assert stop(StopOrder(only, domain=domain_id, local=True, wait=30.0)) == 0
        finally:
            guard.kill()
    assert type(opened[0]).__name__ == ("_NodePort" if broken else "StopPort")


GUARD = """
import sys, rclpy
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from std_msgs.msg import Bool
from testudo_nodes.common.qos import OFFERED, REQUESTED
rclpy.init(domain_id=int(sys.argv[1]))
node = rclpy.create_node("guard")
code = [""]
node.create_subscription(Bool, "/estop", lambda m: code.append("estop" if m.data else ""), REQUESTED["estop"])
status = node.create_publisher(DiagnosticStatus, "/r0/guard_status", OFFERED["guard_status"])
node.create_timer(0.1, lambda: status.publish(DiagnosticStatus(values=[KeyValue(key="code", value=code[-1])])))
print("ready", flush=True)
rclpy.spin(node)
"""
