"""Computers on one machine: frames are delayed, lost and cut; clocks, shared memory and identity are separate."""

import subprocess
import sys

import pytest

from testudo_bench.hosts.computers import Clocks, Computers, missing
from testudo_bench.hosts.shaped_links import Link, ShapedLinks
from testudo_hardware.errors import TestudoError

SHARED = "/dev/shm"  # noqa: S108
ALL = b"\xff" * 6
A, B, C = (bytes((2, 0, 0, 0, 0, k)) for k in range(3))


TELL = """
import os, time
print(time.monotonic(), time.time(), os.uname().nodename, open("/etc/machine-id").read())
"""
ECHO = """
import socket
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.bind(("", 9999))
while True:
    ear.sendto(*ear.recvfrom(100))
"""
ASK = """
import socket, sys, time
mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
mouth.settimeout(0.5)
for k in range(10):
    begin_s = time.monotonic()
    mouth.sendto(bytes((k,)), (sys.argv[1], 9999))
    try:
        while mouth.recv(100)[0] != k:
            pass
    except TimeoutError:
        continue
    print(time.monotonic() - begin_s)
"""


def arrivals(links, frame, sender, count):
    for k in range(count):
        links.accept(sender, frame, float(k))
    found = []
    while (now_s := links.next_s) is not None:
        found += [(now_s, receiver) for receiver, _ in links.due(now_s)]
    return found


def test_frames_are_lost_and_late_by_the_given_share_and_spread():
    links = ShapedLinks("abc", Link(50.0, 20.0, 0.1), seed=1)
    found = arrivals(links, ALL + A, "a", 10_000)
    assert {receiver for _, receiver in found} == {"b", "c"}
    assert links.frames == 20_000
    assert len(found) == links.frames - links.lost
    assert 0.09 < links.lost / links.frames < 0.11
    late = [at_s % 1.0 for at_s, _ in found]
    assert 0.03 <= min(late) < 0.031
    assert 0.069 < max(late) <= 0.07


def test_a_known_address_gets_its_frames_alone_and_a_partition_stops_them():
    links = ShapedLinks("abc", Link(), seed=1)
    assert len(arrivals(links, A + B, "b", 1)) == 2  # nobody knows a's address yet
    assert [receiver for _, receiver in arrivals(links, B + A, "a", 1)] == ["b"]
    links.part([("a", "c"), ("b",)])
    assert not arrivals(links, B + A, "a", 1)
    assert [receiver for _, receiver in arrivals(links, ALL + A, "a", 1)] == ["c"]
    assert links.cut == 2
    links.part([("a",)])  # b and c are together
    assert [receiver for _, receiver in arrivals(links, ALL + B, "b", 1)] == ["c"]
    links.part([])
    assert [receiver for _, receiver in arrivals(links, B + A, "a", 1)] == ["b"]


def test_ip_multicast_passes_only_where_the_link_lets_it():
    group = bytes((1, 0, 0x5E, 0x7F, 0, 1))
    for passes in (True, False):
        links = ShapedLinks("ab", Link(multicast=passes), seed=1)
        assert bool(arrivals(links, group + A, "a", 1)) is passes
        assert arrivals(links, ALL + A, "a", 1)  # ARP


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delay_ms": -1.0}, "--delay-ms: found -1"),
        ({"delay_ms": 10.0, "jitter_ms": 20.0}, "--jitter-ms: found 20, expected 0 to the delay"),
        ({"loss": 10.0}, "--loss: found 10, expected a share"),
    ],
)
def test_impossible_links_are_refused(given, message):
    with pytest.raises(TestudoError, match=message):
        Link(**given)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_two_computers_share_the_network_alone(tmp_path):
    clocks = {"r0": Clocks(wall_s=-240.0, steady_s=5000.0)}
    with Computers(("r0", "station"), Link(50.0, 20.0), domain_id=1, clocks=clocks) as both:
        own, other = (both.run(name, [sys.executable, "-c", TELL]).stdout.split() for name in ("r0", "station"))
        assert float(own[0]) - float(other[0]) == pytest.approx(5000.0, abs=5)
        assert float(own[1]) - float(other[1]) == pytest.approx(-240.0, abs=5)
        assert (own[2], other[2]) == ("r0", "station")
        assert own[3] != other[3]
        both.run("r0", ["touch", f"{SHARED}/mine"])
        assert "mine" not in both.run("station", ["ls", SHARED]).stdout

        with both.start("station", [sys.executable, "-c", ECHO], stdin=subprocess.DEVNULL) as echo:
            words = [sys.executable, "-c", ASK, both.all["station"].address]
            waits_s = [float(text) for text in both.run("r0", words).stdout.split()]
            both.part(("r0",), ("station",))
            cut = both.run("r0", words).stdout.split()
            echo.kill()
    assert len(waits_s) == 10
    # there and back 60 to 140 ms, and the machine's own delay; the first also asks for the address
    assert min(waits_s) >= 0.06
    assert sorted(waits_s)[len(waits_s) // 2] < 0.145
    assert not cut
    assert both.counts["cut"] > 0
