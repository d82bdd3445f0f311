"""The server of the station page: nobody but the page commands robots, and no reader holds it up."""

import http.client
import json
import socket
import time
from pathlib import Path

import pytest
from tests.deploy.station_page.page_stage import Desk, make_fleet, served

from testudo_deploy.station_page.access import TOKEN_HEADER
from testudo_deploy.station_page.server import MOST_STREAMS, PageServer
from testudo_hardware.errors import TestudoError

WORD = "known-to-the-page"
PAUSE = json.dumps({"verb": "pause", "robots": ["r0"]}).encode()


@pytest.fixture(scope="module")
def running():
    """Return a desk and the port of its server."""
    desk = Desk()
    with served(desk, WORD) as server:
        yield desk, server._server.server_port


def asked(port, method, path, body=None, **changed):
    """Ask as the page does, with changed headers (None leaves one out); return status, headers and body."""
    host = f"127.0.0.1:{port}"
    headers = {"Host": host, TOKEN_HEADER: WORD, "Origin": f"http://{host}", "Content-Type": "application/json"}
    headers |= {"Content-Length": str(len(body or b""))}
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers), b"" if path == "/events" and answer.status == 200 else answer.read()
    connection.close()
    return found


FOREIGN = {
    "another origin": {"Origin": "http://example.org"},
    "an origin without a name": {"Origin": "null"},
    "no origin": {"Origin": None},
    "a name that was made to resolve here": {"Host": "example.org:80", "Origin": "http://example.org:80"},
    "another port of this host": {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"},
    "no host": {"Host": None},
    "two hosts": {"host": "example.org"},
    "two tokens": {TOKEN_HEADER.lower().replace("-", "_"): "guess"},
    "another site": {"Sec_Fetch_Site": "cross-site"},
    "a wrong token": {TOKEN_HEADER.replace("-", "_"): "guess"},
    "no token": {TOKEN_HEADER.replace("-", "_"): None},
}


@pytest.mark.parametrize("changed", FOREIGN.values(), ids=FOREIGN)
def test_another_page_of_the_browser_commands_nothing(running, changed):
    desk, port = running
    before = desk.stops, len(desk.requests)
    for path, body in (("/stop", None), ("/request", PAUSE)):
        status, headers, _ = asked(port, "POST", path, body, **changed)
        assert status == 403
        assert "Access-Control-Allow-Origin" not in headers
    assert (desk.stops, len(desk.requests)) == before
    assert asked(port, "POST", "/request", PAUSE)[0] == 202  # the page itself does
    assert asked(port, "POST", "/stop")[0] == 200
    assert desk.stops == before[0] + 1


@pytest.mark.parametrize(
    "changed", [FOREIGN["no token"], FOREIGN["a name that was made to resolve here"], FOREIGN["another site"]]
)
@pytest.mark.parametrize("path", ["/events", "/runs"])
def test_another_page_reads_nothing(running, path, changed):
    assert asked(running[1], "GET", path, **{"Origin": None, **changed})[0] == 403


def test_it_listens_on_this_computer_only(running):
    _, port = running
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    listening = [row[1] for row in sockets if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


def test_pages_fetch_nothing_from_elsewhere_and_stand_in_no_frame(running):
    for path in ("/", "/station.js", "/station.css", "/map.js", "/robots.js"):
        status, headers, body = asked(running[1], "GET", path, Origin=None, **FOREIGN["no token"])
        assert status == 200
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"//" not in body.replace(b"// ", b"").replace(b"http://127.0.0.1", b"")
        assert b"innerHTML" not in body
        assert WORD.encode() not in body


def test_a_report_has_a_key_of_its_own_and_scripts_without_an_origin(running, tmp_path):
    desk, port = running
    (tmp_path / "report.html").write_text("<h1>a run</h1>")
    desk.reports, desk.run_list = {"a/b": tmp_path / "report.html"}, [{"name": "a/b", "report": "a/b"}]
    (run,) = json.loads(asked(port, "GET", "/runs")[2])["runs"]
    status, headers, body = asked(port, "GET", run["report"], Origin=None, **FOREIGN["no token"])
    assert (status, body) == (200, b"<h1>a run</h1>")
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'")
    key = run["report"].split("/")[2]
    for path in (
        "/reports/x/a/b",
        f"/reports/{key}/a",
        f"/reports/{key}/../a/b",
        f"/reports/{WORD}/a/b",
        "/reports/",
    ):
        assert asked(port, "GET", path, Origin=None)[0] == 404
    assert asked(port, "POST", "/stop", **{TOKEN_HEADER.replace("-", "_"): key})[0] == 403


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 4000, b'{"verb": "fly"}', b'{"verb": "goal", "robots": ["r0"]}', b"9" * 5000]
)
def test_bad_requests_are_refused_with_a_sentence(running, body):
    desk, port = running
    before = len(desk.requests)
    status, _, answer = asked(port, "POST", "/request", body)
    assert status == 400
    assert json.loads(answer)["sentence"]
    assert len(desk.requests) == before


def stream(port):
    """Return a socket that has asked for the stream."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{TOKEN_HEADER}: {WORD}\r\n\r\n".encode())
    return connection


def test_readers_that_stop_reading_hold_up_nobody_and_are_left():
    desk = Desk(make_fleet(robots=("r0",)))
    big = "x" * 20000
    with PageServer(desk, 0, WORD) as server:
        port = server._server.server_port
        stuck = [stream(port) for _ in range(MOST_STREAMS)]
        while not all(one.recv(1) for one in stuck):  # all of them are served
            time.sleep(0.01)
        begin_s = time.monotonic()
        for _ in range(200):
            desk.board.post(big)
        assert time.monotonic() - begin_s < 1.0  # who posts waits for no reader
        assert asked(port, "POST", "/stop")[0] == 200  # and the stop is within reach
        assert asked(port, "GET", "/events", Origin=None)[0] == 503
        end_s = time.monotonic() + 8.0
        while (
            asked(port, "GET", "/events", Origin=None)[0] != 200
        ):  # the places of those that do not read are free again
            desk.board.post(big)
            assert time.monotonic() < end_s
            time.sleep(0.2)
        for one in stuck:
            one.close()


def test_a_port_that_is_taken_is_refused_with_a_sentence(running):
    with pytest.raises(TestudoError, match=r"--port \d+: .*; give another one, or 0"):
        PageServer(Desk(), running[1])
