"""The resident emergency stop of the station: it has found all guards before anybody presses it.

It is pressed by the local pipe and socket (`testudo estop`), by a button, or by `/estop` of another program, and
repeats its level until every guard has confirmed. It publishes the station's heartbeat, and in it the state of the
fleet's hold-to-run switch. The logic is in `testudo_deploy.station.resident_stop`.
"""

import functools
import os
import sys
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import Joy
from std_msgs.msg import Bool, String

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.hold_switch import HoldSwitch, chosen_switch
from testudo_deploy.guard.hold_to_run import HELD, RELEASED, UNHEARD, beat_text
from testudo_deploy.launch.ros_domain import LOOPBACK, ros_domain_id
from testudo_deploy.launch.topic_names import ESTOP_TOPIC, HEARTBEAT_TOPIC
from testudo_deploy.station.button_device import ButtonChoice, ButtonDevice, button_choice
from testudo_deploy.station.resident_stop import ResidentStop
from testudo_deploy.station.stop_channel import PRESS, RELEASE, StopChannel, channel_name
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.clock import RealTimeClock, backend_of, secure
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.node_runner import CpuMeter, parameter, report_status, run, text_parameter
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.common.qos import OFFERED, REQUESTED, SHOWN

_STEP_S = 0.1  # period of heartbeats, and of a level that is not confirmed yet
_LEAST_BEAT_S = 0.02  # a joystick that sends faster is not followed in every message
_DEVICE, _JOYSTICK = "the button", "the joystick"


class EmergencyStopNode(Node):
    """The node of the emergency stop."""

    def __init__(self, _stop: Future) -> None:
        """Find the guards, and open the local pipe and socket.

        Raises:
            TestudoError: the fleet or the button is refused.
        """
        super().__init__("emergency_stop")
        self.failed = False
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        text_parameter(self, "policy", "the policy file")
        choice = button_choice(parameter(self, "button", "", "a device such as /dev/input/event3, or TOPIC:NUMBER"))
        self._switch = chosen_switch(
            fleet.hold_to_run, parameter(self, "hold_to_run", "", "TOPIC:NUMBER of the joystick's button to hold")
        )
        _check_buttons(choice, self._switch)
        in_real_time = not self.get_parameter("use_sim_time").value
        self._node_clock = RealTimeClock(self)  # also in lock-step: nobody waits for this node
        if in_real_time:
            secure(self, self._node_clock, fleet, backend_of(self))  # a forged status confirms no stop
        self._lock = threading.Lock()
        self._state = ResidentStop(fleet.names)
        self._beats = self._joy_messages = self._joy_told = 0
        self._switch_word, self._beat_s = UNHEARD, -float("inf")
        self._level = self.create_publisher(Bool, ESTOP_TOPIC, OFFERED["estop"])
        self._heartbeat = self._node_clock.publisher(String, HEARTBEAT_TOPIC, OFFERED["station_heartbeat"])
        self._node_clock.subscribe(Bool, ESTOP_TOPIC, self._on_level, REQUESTED["estop"])
        for name in fleet.names:
            take = functools.partial(self._on_guard, name)
            self._node_clock.subscribe(DiagnosticStatus, f"/{name}/guard_status", take, SHOWN["guard_status"])
        self._button = None
        if choice is not None and choice.device:
            self._button = ButtonDevice(choice.device, self._device_pressed, self._device_let_go)
        elif choice is not None:
            self._joystick_index = choice.index
            self._node_clock.subscribe(Joy, choice.topic, self._on_joystick, REQUESTED["joy"])
        if self._switch is not None:
            self._node_clock.subscribe(Joy, self._switch.topic, self._on_switch, REQUESTED["joy"])
        self._timer = self._node_clock.every(_STEP_S, self._step)
        self._channel = self._open_channel()
        if in_real_time:
            raise_priority(PRIORITIES["emergency_stop"])
        self.priority = PRIORITIES["emergency_stop"] if in_real_time else 0
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Close the local way, and report the processor time."""
        if self._channel is not None:
            self._channel.__exit__()
        report_status("emergency_stop", {"cpu_share": self._cpu.share()})

    def _open_channel(self) -> StopChannel | None:
        is_local = all(os.environ.get(key) == value for key, value in LOOPBACK.items())
        look = None if self._button is None else self._button.look
        try:
            channel = StopChannel(
                channel_name(ros_domain_id(None), local=is_local), press=self._press, ask=self._ask, look=look
            )
            return channel.__enter__()
        except OSError as error:
            self.get_logger().error(f"no local way to the emergency stop: {error}; `testudo estop` will start slowly")
            return None

    def _now_s(self) -> float:
        return self._node_clock.now_s()

    def _press(self, source: str, *, held: bool = False) -> None:
        """Press the stop, from any thread."""
        with self._lock:
            is_new = self._state.press(source, self._now_s(), held=held)
        self._level.publish(Bool(data=True))
        if is_new:
            self.get_logger().warning(f"emergency stop: pressed by {source}")

    def _ask(self, word: str) -> dict[str, Any]:
        """Handle a word of a client, and return the state."""
        refused = ""
        if word == PRESS:
            self._press("testudo estop")
        elif word == RELEASE:
            with self._lock:
                refused = self._state.release(self._now_s())
            if not refused:
                self._level.publish(Bool(data=False))
        with self._lock:
            return {**self._state.answer(self._now_s()), "refused": refused}

    def _device_pressed(self) -> None:
        self._press(_DEVICE, held=True)

    def _device_let_go(self) -> None:
        with self._lock:
            self._state.let_go(_DEVICE)

    def _on_joystick(self, message: Joy) -> None:
        if self._joystick_index < len(message.buttons) and not message.buttons[self._joystick_index]:
            with self._lock:
                self._state.let_go(_JOYSTICK)
            return
        self._press(_JOYSTICK, held=True)  # also by a joystick that lacks this button: it is another one

    def _on_level(self, message: Bool) -> None:
        with self._lock:
            adopted = self._state.hear_level(message.data, self._now_s())
        if adopted:
            self._level.publish(Bool(data=message.data))  # latched, for guards that start later

    def _on_guard(self, name: str, message: DiagnosticStatus) -> None:
        with self._lock:
            changed = self._state.hear_guard(name, status_values(message), self._now_s())
        if changed and self._channel is not None:
            self._channel.notify()

    def _step(self) -> None:
        """Repeat the level until it is confirmed, and tell the guards that the emergency stop can be reached."""
        with self._lock:
            released = self._state.step(self._now_s())
            repeats = self._state.level and not self._state.is_confirmed(self._now_s())
        if released:
            self._level.publish(Bool(data=False))
        if repeats:
            self._level.publish(Bool(data=True))
        self._beat()

    def _on_switch(self, message: Joy) -> None:
        """Tell the guards whether the hold-to-run switch is held; a joystick that lacks the button does not hold it."""
        if self._switch is None:
            return
        buttons, before = message.buttons, self._switch_word
        held = self._switch.button < len(buttons) and buttons[self._switch.button] == 1
        self._switch_word = HELD if held else RELEASED
        self._joy_messages += 1
        if self._switch_word != before or self._now_s() - self._beat_s >= _LEAST_BEAT_S:
            self._joy_told = self._joy_messages  # later heartbeats repeat this one, which then counts once
            self._beat()

    def _beat(self) -> None:
        if self._channel is None or not self._channel.is_alive:
            return
        self._beats, self._beat_s = self._beats + 1, self._now_s()
        text = str(self._beats)
        if self._switch is not None:
            text = beat_text(self._beats, self._switch_word, self._joy_told)
        self._heartbeat.publish(String(data=text))


def _check_buttons(button: ButtonChoice | None, switch: HoldSwitch | None) -> None:
    """Refuse one button of a joystick that is to be held for motion and stops the fleet.

    Raises:
        TestudoError: it is the same one.
    """
    if button is None or switch is None or not button.topic:
        return
    if ("/" + button.topic.lstrip("/"), button.index) == (switch.topic, switch.button):
        raise TestudoError(
            f"hold_to_run: found {switch.topic}:{switch.button}, expected another button than the emergency stop's"
        )


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(EmergencyStopNode))


if __name__ == "__main__":
    main()
