"""The HTTP server of the station page, on 127.0.0.1 only, by the standard library: a page, a stream, and few requests.

Every connection has a thread of its own and a time limit, and their number is limited: one that stops reading ends by
itself. No thread of it touches ROS.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, Self

from testudo_deploy.station_page.access import HOST, PageAccess
from testudo_deploy.station_page.board import Board
from testudo_deploy.station_page.page_request import MOST_BYTES
from testudo_hardware.errors import TestudoError

MOST_STREAMS = 4
"""A browser opens six connections to one host: with more streams none would be left for the emergency stop."""
_MOST_CONNECTIONS = 64
_REQUEST_S, _WRITE_S, _QUIET_S = 5.0, 2.0, 0.5
_SEND_BUFFER_BYTES = 32768
"""Small, so that a reader that stalls and goes on finds few old pictures."""
_HTML, _JSON, _EVENTS = "text/html; charset=utf-8", "application/json", "text/event-stream"
_ASSETS = {
    "/": ("index.html", _HTML),
    "/station.css": ("station.css", "text/css"),
    "/station.js": ("station.js", "text/javascript"),
    "/map.js": ("map.js", "text/javascript"),
    "/robots.js": ("robots.js", "text/javascript"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # a page that frames this one could lead clicks to its buttons
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; media-src data: blob:; frame-ancestors 'none'"
)
"""A report is a file of a run folder, perhaps of somebody else: its scripts have an origin of their own, and no net."""


class StationDesk(Protocol):
    """What the server asks of the station; called in threads of the server."""

    board: Board
    """Pictures of the fleet."""

    def fleet(self) -> Mapping[str, Any]:
        """Return what does not change."""
        ...

    def stop(self) -> Mapping[str, Any]:
        """Press the emergency stop, and return which guards have confirmed it; takes some seconds without them."""
        ...

    def request(self, data: bytes) -> int:
        """Begin a request, and return its number; the pictures have its answer.

        Raises:
            TestudoError: it is refused.
        """
        ...

    def runs(self) -> list[dict[str, Any]]:
        """Return the recorded runs; those with a report have its name as `report`."""
        ...

    def report(self, run: str) -> Path | None:
        """Return the report of a run of that list; None without."""
        ...


class PageServer:
    """The server; a context manager that serves in threads."""

    def __init__(self, desk: StationDesk, port: int, token: str | None = None) -> None:
        """Take the port, 0 for any that is free; ``token`` as in `PageAccess`.

        Raises:
            TestudoError: the port is taken, or not permitted.
        """
        try:
            self._server = _Server((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TestudoError(f"--port {port}: {reason}; give another one, or 0 for one that is free") from error
        self.access = PageAccess(self._server.server_port, token)
        self._server.desk, self._server.access = desk, self.access
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.desk.board.close()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close, allow_reuse_address = True, False, True
    desk: StationDesk
    access: PageAccess

    def __init__(self, *arguments: Any) -> None:
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no further thread
            self._connections.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore what a client does to its connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] -- it serves no other
    timeout = _REQUEST_S
    server_version, sys_version = "testudo", ""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 -- the name of the base class
        """Write nothing: addresses could hold a key."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        refusal = self._refusal()
        if refusal:
            self._answer(HTTPStatus.FORBIDDEN, refusal)
        elif path in _ASSETS:
            name, kind = _ASSETS[path]
            self._send(HTTPStatus.OK, _asset(name), kind)
        elif path.startswith("/reports/"):
            self._report(path)
        elif not self._has_token():
            self._answer(HTTPStatus.FORBIDDEN, "open the address that `testudo station` printed")
        elif path == "/events":
            self._stream()
        elif path == "/runs":
            self._runs()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "no such page")

    def do_POST(self) -> None:
        refusal = self._refusal(commands=True)
        if refusal or not self._has_token():
            self._answer(HTTPStatus.FORBIDDEN, refusal or "open the address that `testudo station` printed")
        elif self.path == "/stop":
            self._json(HTTPStatus.OK, self.server.desk.stop())
        elif self.path == "/request":
            self._request()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "no such request")

    def _refusal(self, *, commands: bool = False) -> str:
        return self.server.access.refusal(self._headers(), commands=commands)

    def _headers(self) -> dict[str, str]:
        """Return the headers by small names; one that comes twice is empty, which no rule accepts."""
        found: dict[str, str] = {}
        for name, value in self.headers.items():
            found[name.lower()] = "" if name.lower() in found else value
        return found

    def _has_token(self) -> bool:
        return self.server.access.has_token(self._headers())

    def _request(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.headers.get_content_type() != _JSON or not length.isdecimal() or int(length[:9]) > MOST_BYTES:
            self._answer(HTTPStatus.BAD_REQUEST, f"expected {_JSON} of at most {MOST_BYTES} bytes")
            return
        try:
            number = self.server.desk.request(self.rfile.read(int(length)))
        except TestudoError as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._json(HTTPStatus.ACCEPTED, {"number": number})

    def _runs(self) -> None:
        access = self.server.access
        found: list[dict[str, Any]] = []
        for run in self.server.desk.runs():
            name = run.get("report")
            link = None if name is None else f"/reports/{access.report_key(name)}/{name}"
            found.append({**run, "report": link})
        self._json(HTTPStatus.OK, {"runs": found})

    def _report(self, path: str) -> None:
        key, _, name = path.removeprefix("/reports/").partition("/")
        file = self.server.desk.report(name) if self.server.access.opens_report(name, key) else None
        try:
            page = None if file is None else file.read_bytes()
        except OSError:
            page = None
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, "no such report")
        else:
            self._send(HTTPStatus.OK, page, _HTML, _REPORT_POLICY)

    def _stream(self) -> None:
        """Send the newest picture whenever there is one, until the reader goes or stops reading."""
        if not self.server.streams.acquire(blocking=False):
            self._answer(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the page is open {MOST_STREAMS} times already: close one of them"
            )
            return
        with contextlib.ExitStack() as stack:
            stack.callback(self.server.streams.release)
            stack.enter_context(contextlib.suppress(OSError))
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            self.connection.settimeout(_WRITE_S)
            self._head(HTTPStatus.OK, _EVENTS, None, _PAGE_POLICY)
            self._event("fleet", json.dumps(self.server.desk.fleet(), allow_nan=False))
            number, board = 0, self.server.desk.board
            while not board.is_closed:
                posted = board.after(number, _QUIET_S)
                if posted is None:
                    self.wfile.write(b": nothing new\n\n")  # notices a reader that has gone; it is no picture
                else:
                    number = posted.number
                    self._event("picture", posted.text)

    def _event(self, name: str, text: str) -> None:
        self.wfile.write(f"event: {name}\ndata: {text}\n\n".encode())

    def _json(self, status: HTTPStatus, values: Mapping[str, Any]) -> None:
        self._send(status, json.dumps(values, allow_nan=False).encode(), _JSON)

    def _answer(self, status: HTTPStatus, sentence: str) -> None:
        self._json(status, {"sentence": sentence})

    def _send(self, status: HTTPStatus, body: bytes, kind: str, policy: str = _PAGE_POLICY) -> None:
        with contextlib.suppress(OSError):
            self._head(status, kind, len(body), policy)
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, length: int | None, policy: str) -> None:
        self.send_response(status)
        headers = {**_HEADERS, "Content-Security-Policy": policy, "Content-Type": kind, "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()


def _asset(name: str) -> bytes:
    return (resources.files("testudo_deploy.station_page") / "assets" / name).read_bytes()
