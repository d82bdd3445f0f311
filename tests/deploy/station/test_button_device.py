"""A button on the emergency stop: key events of Linux, from a pipe in place of the device."""

import os
import struct

import pytest

from testudo_deploy.station.button_device import ButtonChoice, ButtonDevice, button_choice
from testudo_hardware.errors import TestudoError


def event(code, value, kind=1):
    return struct.pack("@llHHi", 0, 0, kind, code, value)


@pytest.fixture
def device(tmp_path):
    """A button, the writing end of its fake device, and what it did."""
    path, did = tmp_path / "event0", []
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    button = ButtonDevice(str(path), lambda: did.append("press"), lambda: did.append("let go"))
    did.clear()
    yield button, end, did
    os.close(end)


def test_a_key_presses_at_once_and_lets_go_with_the_last_one(device):
    button, end, did = device
    button.look()
    assert did == []
    os.write(end, event(30, 1) + event(0, 0, kind=0) + event(48, 1) + event(30, 0))
    button.look()
    assert did == ["press", "press"]
    os.write(end, event(48, 0))
    button.look()
    assert did == ["press", "press", "let go"]


def test_movements_of_the_same_device_press_nothing(device):
    button, end, did = device
    os.write(end, event(0, 7, kind=2) + event(0, 1, kind=3))
    button.look()
    assert did == []


def test_a_device_that_is_unplugged_presses_and_counts_again_once_it_is_back(tmp_path):
    path, did = tmp_path / "event0", []
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    button = ButtonDevice(str(path), lambda: did.append("press"), lambda: did.append("let go"))
    os.write(end, event(30, 0))
    button.look()
    os.close(end)
    did.clear()
    button.look()  # end of file
    assert did == ["press"]
    path.unlink()
    button.look()
    assert did == ["press"]
    path.write_bytes(event(30, 1))
    button.look()
    button.look()
    assert did == ["press", "let go", "press"]


def test_a_device_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TestudoError, match=r"button: .*event9: No such file"):
        ButtonDevice(str(tmp_path / "event9"), lambda: None, lambda: None)


def test_choices():
    assert button_choice("") is None
    assert button_choice("/dev/input/event3") == ButtonChoice(device="/dev/input/event3")
    assert button_choice("/pad/joy:1") == ButtonChoice(topic="/pad/joy", index=1)
    for wrong in ("joy", "/joy:one", "1"):
        with pytest.raises(TestudoError, match="expected a device such as"):
            button_choice(wrong)
