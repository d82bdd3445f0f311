"""A headless Chromium that tests steer over pipes, without a network and without another package."""

import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

_LIMIT_S = 60.0


class Tab:
    """One page in the browser."""

    def __init__(self, sending, receiving):
        self._sending, self._receiving = sending, receiving
        self._number, self._rest = 0, b""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors = []
        self._ask("Runtime.enable")

    def open(self, address):
        """Open an address and wait until the page is complete."""
        self._ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script):
        """Return the value of an expression in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script):
        """Wait until an expression is true."""
        end = time.monotonic() + _LIMIT_S
        while not self.value(script):
            assert time.monotonic() < end, f"not true within {_LIMIT_S:g} s: {script}"
            time.sleep(0.02)

    def press(self, key, *, shift=False):
        """Press a key as a user does."""
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 * shift)

    def click(self, x, y):
        """Press and release the left button at a place of the window [px]."""
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def _ask(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._sending, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _read(self):
        while b"\0" not in self._rest:
            assert select.select([self._receiving], [], [], _LIMIT_S)[0], "the browser does not answer"
            part = os.read(self._receiving, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)


def chromium():
    """Return the path of a Chromium; None without one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def tab(folder, size=(1200, 1000), reached=""):
    """Yield a tab of a new browser whose profile is in ``folder``; no host but ``reached`` can be reached from it."""
    to_read, sending = os.pipe()
    receiving, to_write = os.pipe()
    rules = "MAP * ~NOTFOUND" + (f", EXCLUDE {reached}" if reached else "")
    options = (
        "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
        f"--host-resolver-rules={rules}", f"--window-size={size[0]},{size[1]}", f"--user-data-dir={folder}",
    )  # fmt: skip
    # the browser reads commands from 3 and answers on 4
    script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", chromium(), *options],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Tab(sending, receiving)
    finally:
        process.kill()
        process.wait()
        os.close(sending)
        os.close(receiving)
