"""Logs that are made for tests: text as the UTIAS robots wrote it, SD cards in both of their formats."""

import struct
from zlib import crc32

import numpy as np

START_S = 1248444175.0


def ground_text(kind, count=200, robot=1):
    """Return the bytes of an odometry or ground-truth log of one robot, which drives a circle at 50 Hz."""
    time = START_S + 0.02 * np.arange(count)
    heads = {
        "Odometry": "# Odometry Data Fomat:\n# Time [s]    forward velocity [m/s]    angular velocity[rad/s]\n",
        "Groundtruth": "# Robot Groundtruth Data Fomat:\n# Time [s]    x [m]    y [m]    orientation [rad]\n",
    }
    yaw = 0.2 * (time - START_S)
    rows = {
        "Odometry": (np.full(count, 0.08), np.full(count, 0.2)),
        "Groundtruth": (robot + 0.4 * np.sin(yaw), -0.4 * np.cos(yaw), yaw),
    }[kind]
    lines = [f"{time[k]:.3f} \t " + " \t ".join(f"{column[k]:.8f}" for column in rows) for k in range(count)]
    return (heads[kind] + "\n".join(lines) + "\n").encode()


def write_team(folder, robots=2, count=200):
    """Write the logs of a team and return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for robot in range(1, robots + 1):
        for kind in ("Odometry", "Groundtruth"):
            (folder / f"Robot{robot}_{kind}.dat").write_bytes(ground_text(kind, count, robot))
    return folder


BLOCK_VARIABLES = (
    ("tick", "I"),
    ("stateEstimateZ.x", "h"),
    ("stateEstimateZ.y", "h"),
    ("stateEstimateZ.z", "h"),
    ("stateEstimateZ.quat", "I"),
    ("ctrltargetZ.x", "h"),
    ("ctrltargetZ.y", "h"),
    ("ctrltargetZ.z", "h"),
    ("ctrltargetZ.vx", "h"),
    ("ctrltargetZ.vy", "h"),
    ("ctrltargetZ.vz", "h"),
    ("pm.vbatMV", "H"),
)
LEVEL = 3 << 30
"""No turn, packed."""


def sealed(data):
    """Return data with the checksum that the deck writes behind it."""
    return data + struct.pack("<I", crc32(data) ^ 0xFFFFFFFF)


def block_log(count=100, per_block=7, step=10_000, first=0, variables=BLOCK_VARIABLES):
    """Return a log of blocks: a climb of 1 mm for each record."""
    head = bytes([len(variables)]) + b"".join(f"{name}({kind}),".encode() for name, kind in variables)
    pack = struct.Struct("<" + "".join(kind for _, kind in variables))
    rows = [
        pack.pack((first + k * step) % (1 << 32), 100, -200, k, LEVEL, 110, -210, k + 5, 0, 0, 100, 3800)
        for k in range(count)
    ]
    blocks = [rows[k : k + per_block] for k in range(0, count, per_block)]
    return sealed(head) + b"".join(sealed(bytes([len(block)]) + b"".join(block)) for block in blocks)


def event_log(version=2, count=100):
    """Return a log of events: the state at 100 Hz, the battery at 10 Hz, and an event without variables."""
    kinds = [
        (
            0,
            "fixedFrequency",
            [
                ("stateEstimate.x", "f"),
                ("stateEstimate.y", "f"),
                ("stateEstimate.z", "f"),
                ("stateEstimate.roll", "f"),
                ("stateEstimate.pitch", "f"),
                ("stateEstimate.yaw", "f"),
                ("motor.m1", "H"),
                ("motor.m2", "H"),
                ("motor.m3", "H"),
                ("motor.m4", "H"),
            ],
        ),
        (1, "battery", [("pm.vbat", "f")]),
        (7, "mark", []),
    ]
    data = b"\xbc" + struct.pack("<HH", version, len(kinds))
    for number, name, variables in kinds:
        data += struct.pack("<H", number) + name.encode() + b"\0" + struct.pack("<H", len(variables))
        data += b"".join(f"{variable}({kind})".encode() + b"\0" for variable, kind in variables)
    stamp, unit = ("<HI", 10) if version == 1 else ("<HQ", 10_000)
    for k in range(count):
        data += struct.pack(stamp + "6f4H", 0, k * unit, 0.1, 0.2, k / 100, 0, -30.0, 90.0, 44125, 44125, 0, 65535)
        if k % 10 == 0:
            data += struct.pack(stamp + "f", 1, k * unit, 3.9) + struct.pack(stamp, 7, k * unit)
    return data + struct.pack("<I", crc32(data))
