"""The local way to the resident emergency stop: a pipe that presses it, and a socket that also answers.

Each resident process opens one of both in a folder of its user, named by ROS domain, reach and process id. Whatever is
written to the pipe is a press: the program `testudo` does so in a shell, before Python starts. On the socket a client
sends one word a line, and receives JSON objects, one a line. Nothing here starts ROS.
"""

import contextlib
import json
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

FOLDER_VARIABLE = "TESTUDO_STOP_FOLDER"
"""Environment variable with another folder than that of the user's session."""
PRESS, RELEASE, STATUS = "press", "release", "status"
LOCAL, NETWORK = "local", "network"
_WAKE_S, _LOOK_S = 0.2, 0.02
_MOST_BYTES = 65536
_CONNECT_S = 0.2

Answer = Mapping[str, Any]


def stop_folder() -> Path:
    """Return the folder of pipes and sockets; `deploy/bin/testudo` looks in the same one."""
    named, session = os.environ.get(FOLDER_VARIABLE), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        return Path(named)
    return Path(session) / "testudo" if session else Path(f"/tmp/testudo-{os.getuid()}")  # noqa: S108 -- refused if another user owns it


class StopChannel:
    """The server's end, with one thread of its own; a context manager."""

    def __init__(
        self,
        name: str,
        *,
        press: Callable[[str], None],
        ask: Callable[[str], Answer],
        look: Callable[[], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Prepare; every function is called in the thread of the channel.

        Args:
            name: begins the names of pipe and socket, see `channel_name`.
            press: presses the stop; takes the name of the source.
            ask: handles a word of a client, and returns the present answer.
            look: called 50 times a second, for a button.
            folder: by default `stop_folder`.
        """
        self._press, self._ask, self._look = press, ask, look
        self._folder = folder or stop_folder()
        self._files = tuple(self._folder / f"{name}_{os.getpid()}.{kind}" for kind in (PRESS, "sock"))
        self._selector = selectors.DefaultSelector()
        self._clients: dict[socket.socket, bytes] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="stop channel", daemon=True)

    def __enter__(self) -> Self:
        """Open pipe and socket.

        Raises:
            OSError: the folder belongs to another user, or cannot be used.
        """
        _make_private(self._folder)
        pipe, path = self._files
        _remove_dead(self._folder)
        os.mkfifo(pipe, 0o600)
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        path.chmod(0o600)  # in a folder of mode 0700: nobody else connects meanwhile
        self._server.listen()
        self._server.setblocking(False)
        for end in (self._pipe, self._server, self._wake_read):
            self._selector.register(end, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self.notify()
        self._thread.join(1.0)
        for file in self._files:
            file.unlink(missing_ok=True)

    @property
    def is_alive(self) -> bool:
        """Return whether its thread still serves."""
        return self._thread.is_alive()

    def notify(self) -> None:
        """Send the present answer to all clients that wait; from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(_WAKE_S if self._look is None else _LOOK_S):
                with contextlib.suppress(OSError):  # of one client; the stop must stay within reach
                    self._serve(key.fileobj)
            if self._look is not None:
                self._look()

    def _serve(self, end: Any) -> None:
        if end == self._pipe:
            os.read(self._pipe, _MOST_BYTES)
            self._press("the local pipe")
            self._answer_all()
        elif end == self._wake_read:
            os.read(self._wake_read, _MOST_BYTES)
            self._answer_all()
        elif end is self._server:
            client, _ = self._server.accept()
            client.setblocking(False)
            self._clients[client] = b""
            self._selector.register(client, selectors.EVENT_READ)
        else:
            self._hear(end)

    def _hear(self, client: socket.socket) -> None:
        try:
            data = client.recv(_MOST_BYTES)
        except OSError:
            data = b""
        if not data or len(self._clients[client]) > _MOST_BYTES:
            self._drop(client)
            return
        *lines, self._clients[client] = (self._clients[client] + data).split(b"\n")
        for line in lines:
            self._send(client, self._ask(line.decode(errors="replace").strip()))

    def _answer_all(self) -> None:
        for client in tuple(self._clients):
            self._send(client, self._ask(""))

    def _send(self, client: socket.socket, answer: Answer) -> None:
        try:
            client.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:  # gone, or it does not read
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        if self._clients.pop(client, None) is not None:
            self._selector.unregister(client)
            client.close()


def channel_name(domain_id: int, *, local: bool) -> str:
    """Return the beginning of the names of pipe and socket of a resident process."""
    return f"{domain_id}_{LOCAL if local else NETWORK}"


class StopClients:
    """Connections to all resident processes of a ROS domain on this computer; a context manager."""

    def __init__(self, domain_id: int, word: str, *, local: bool, folder: Path | None = None) -> None:
        """Connect, and send a word to each; ``local`` is the reach of the caller, see `complete`."""
        self._reach = channel_name(domain_id, local=local)
        self._streams: dict[socket.socket, bytes] = {}
        self._answers: dict[str, Answer] = {}
        """By name of the socket: its newest answer."""
        self._names: dict[socket.socket, str] = {}
        for path in sorted((folder or stop_folder()).glob(f"{domain_id}_*.sock")):
            self._connect(path, word)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return the newest answer of each process that gave one."""
        return tuple(self._answers.values())

    @property
    def is_connected(self) -> bool:
        """Return whether there are such processes."""
        return bool(self._streams)

    @property
    def complete(self) -> bool:
        """Return whether a process of the caller's own reach has answered."""
        return any(name.startswith(f"{self._reach}_") for name in self._answers)

    def listen(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Receive answers for some time [s], or until ``enough`` returns True."""
        end_s = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            while not enough() and selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if not self._receive(key.fileobj):
                        selector.unregister(key.fileobj)

    def _connect(self, path: Path, word: str) -> None:
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(_CONNECT_S)
        try:
            _check_own(path)
            stream.connect(str(path))
            stream.sendall(word.encode() + b"\n")
        except OSError:  # a process that died, or the socket of another user
            stream.close()
            return
        stream.setblocking(False)
        self._streams[stream], self._names[stream] = b"", path.name

    def _receive(self, stream: Any) -> bool:
        """Take what has arrived; return False after the end."""
        try:
            data = stream.recv(_MOST_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._streams[stream] = (self._streams[stream] + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._answers[self._names[stream]] = json.loads(line)
        return bool(data)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(folder)
    folder.chmod(0o700)


def _check_own(path: Path) -> None:
    """Refuse a file that another user has made.

    Raises:
        PermissionError: it belongs to another user, or is a link.
    """
    found = path.lstat()
    if found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode):
        raise PermissionError(f"{path}: belongs to another user, or is a link")


def _remove_dead(folder: Path) -> None:
    """Remove the files of processes that were killed."""
    for file in _ends(folder):
        number = file.stem.rpartition("_")[2]
        if number.isdecimal() and not Path("/proc", number).exists():
            file.unlink(missing_ok=True)


def _ends(folder: Path) -> Iterable[Path]:
    return (file for kind in (PRESS, "sock") for file in folder.glob(f"*.{kind}"))
