"""The process of the shaped network: an Ethernet port in each computer's network namespace, frames in user space.

    python -m testudo_bench.hosts.shaped_switch '{"ports": {"r0": "/run/netns/...", ...}, "link": {...}, "seed": 0}'

It says `{"event": "ready"}`, takes `{"part": [["r0"], ["r1"]]}` lines on standard input, and says its counts when that
ends. The code that makes a namespace also assigns the address of its port.
"""

import contextlib
import fcntl
import json
import os
import select
import struct
import sys
import time
from typing import Any

from testudo_bench.hosts.shaped_links import Link, ShapedLinks
from testudo_nodes.common.process_priority import PRIORITIES, set_realtime_priority

PORT = "wifi0"
"""Name of the network interface in every computer."""
_TUNSETIFF, _TAP, _NO_PACKET_INFO = 0x400454CA, 0x0002, 0x1000
_MOST_BYTES = 65536
_BURST = 64  # frames taken from one port before the others


def open_port(namespace: str) -> int:
    """Return the file of a new port in a network namespace."""
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(namespace, os.O_RDONLY)
    try:
        os.setns(there, os.CLONE_NEWNET)
        port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(port, _TUNSETIFF, struct.pack("16sH22x", PORT.encode(), _TAP | _NO_PACKET_INFO))
    finally:
        os.setns(here, os.CLONE_NEWNET)
        os.close(there)
        os.close(here)
    return port


def serve(ports: dict[str, int], links: ShapedLinks) -> None:
    """Pass frames until standard input ends."""
    poller = select.poll()
    names = {port: name for name, port in ports.items()}
    orders = sys.stdin.fileno()
    os.set_blocking(orders, False)
    for file in (*names, orders):
        poller.register(file, select.POLLIN)
    text = b""
    while True:
        wait_s = None if links.next_s is None else max(0.0, links.next_s - time.monotonic())
        for file, _ in poller.poll(None if wait_s is None else 1e3 * wait_s):
            if file != orders:
                _take(file, names[file], links)
                continue
            new = os.read(orders, _MOST_BYTES)
            if not new:
                return
            *lines, text = (text + new).split(b"\n")
            for line in lines:
                links.part(json.loads(line)["part"])
        for receiver, frame in links.due(time.monotonic()):
            with contextlib.suppress(BlockingIOError):  # a full port drops, as a real one does
                os.write(ports[receiver], frame)


def _take(port: int, name: str, links: ShapedLinks) -> None:
    for _ in range(_BURST):
        try:
            frame = os.read(port, _MOST_BYTES)
        except BlockingIOError:
            return
        links.accept(name, frame, time.monotonic())


def _say(values: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the network that the first word describes."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    ports = {name: open_port(namespace) for name, namespace in given["ports"].items()}
    links = ShapedLinks(tuple(ports), Link(**given["link"]), given["seed"])
    set_realtime_priority(PRIORITIES["observer"])  # a switch that waits for a core would add its own delay
    _say({"event": "ready"})
    serve(ports, links)
    _say({"event": "network", "frames": links.frames, "lost": links.lost, "cut": links.cut})


if __name__ == "__main__":
    main()
