"""A log whose units or axes are not as its mapping says is refused with the remedy, and imported once it is mended."""

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_runs.importing.mapping.mapping_file import parse_map
from testudo_runs.importing.run_import import ImportRequest, import_run

TIME = 1.7e9 + 0.05 * np.arange(800)
ANGLE = 0.35 * (TIME - TIME[0])


def ground():
    """Return the columns of a robot that drives an eight at 0.1 m/s, with turns both ways and noise."""
    random = np.random.default_rng(0)
    rate = 0.5 * np.sin(ANGLE / 2)
    yaw = np.cumsum(rate) * 0.05
    x, y = np.cumsum(0.1 * np.cos(yaw)) * 0.05, np.cumsum(0.1 * np.sin(yaw)) * 0.05
    noise = random.normal(0, 0.002, (2, len(TIME)))
    zero = 0 * TIME
    return {
        "x": x + noise[0],
        "y": y + noise[1],
        "z": zero,
        "yaw": yaw,
        "vx": zero + 0.1,
        "vy": zero,
        "wz": rate,
        "ax": zero,
        "ay": zero,
        "az": zero + 9.81,
    }


def drone():
    """Return the columns of a drone that flies a circle at 0.5 m height, a little inclined."""
    zero = 0 * TIME
    return {
        "x": np.cos(ANGLE),
        "y": np.sin(ANGLE),
        "z": zero + 0.5,
        "roll": zero + 0.1,
        "pitch": zero - 0.05,
        "yaw": 0.3 * ANGLE,
        "vx": zero,
        "vy": zero,
        "wz": zero + 0.3 * 0.35,
        "ax": zero,
        "ay": zero,
        "az": zero + 9.81,
    }


ROLES = {"pose": "x y z roll pitch yaw", "odometry": "x y z yaw vx vy wz", "imu": "ax ay az wx wy wz yaw"}


def mapping(names, robot, **change):
    """Return the mapping of columns with equal names; ``change`` maps channels otherwise."""
    names = [*names, "wx", "wy"]
    roles = [
        f"      {role}: {{channels: {{"
        + ", ".join(f"{name}: {change.get(name, name)}" for name in channels.split() if name in names)
        + f"}}{change.get(role, '')}}}\n"
        for role, channels in ROLES.items()
    ]
    text = (
        f"schema: testudo/map/1\nname: own\nabout: test\nrobot_type: {robot}\ntext:\n"
        '  - files: "{robot}.csv"\n    delimiter: ","\n    header: line\n'
        "    time: {column: stamp, unit: s, clock: unix}\n    roles:\n" + "".join(roles)
    )
    return parse_map(text, "own.yaml")


def imported(folder, columns, robot, **change):
    """Import a log of the columns."""
    columns = {"stamp": TIME, **columns, "wx": 0 * TIME, "wy": 0 * TIME}
    rows = np.stack(list(columns.values()), axis=1)
    lines = [",".join(columns), *(",".join(f"{value:.9g}" for value in row) for row in rows)]
    lines = [lines[0], *(f"{stamp:.3f},{line.partition(',')[2]}" for stamp, line in zip(TIME, lines[1:], strict=True))]
    (folder / "bot.csv").write_text("\n".join(lines) + "\n")
    return import_run(ImportRequest((folder / "bot.csv",), mapping(columns, robot, **change)), folder / "run")


def scaled(columns, factor, *names):
    return {name: values * (factor if name in names else 1) for name, values in columns.items()}


def renamed(columns, **sources):
    """Return columns in which some names hold what another name held, or minus that."""
    return {
        name: -columns[sources[name][1:]] if sources.get(name, "").startswith("-") else columns[sources.get(name, name)]
        for name in columns
    }


UNIT = "{{column: {}, unit: {}}}"
DEGREE = np.degrees(1.0)

GROUND = {
    "millimetres": (lambda c: scaled(c, 1000, "x", "y"), "in mm", {n: UNIT.format(n, "mm") for n in "xy"}),
    "degrees": (lambda c: scaled(c, DEGREE, "yaw"), "degrees", {"yaw": UNIT.format("yaw", "deg")}),
    "degrees a second": (lambda c: scaled(c, DEGREE, "wz"), "deg/s", {"wz": UNIT.format("wz", "deg/s")}),
    "y up": (lambda c: renamed(c, y="z", z="-y"), "y may point up", {"y": "{column: z, scale: -1}", "z": "y"}),
    "clockwise": (
        lambda c: scaled(c, -1, "yaw", "wz"),
        "scale: -1",
        {n: f"{{column: {n}, scale: -1}}" for n in ("yaw", "wz")},
    ),
    "rate clockwise": (lambda c: scaled(c, -1, "wz"), "opposite", {"wz": "{column: wz, scale: -1}"}),
    "heading from y": (lambda c: {**c, "yaw": c["yaw"] - np.pi / 2}, "90 deg off", None),
    "speeds in cm/s": (lambda c: scaled(c, 100, "vx"), "unit` of vx", {"vx": UNIT.format("vx", "cm/s")}),
    "speeds in the world": (
        lambda c: {**c, "vx": 0.1 * np.cos(c["yaw"]), "vy": 0.1 * np.sin(c["yaw"])},
        "velocity: world",
        {"odometry": ", velocity: world"},
    ),
    "in g": (
        lambda c: scaled(c, 1 / 9.81, "ax", "ay", "az"),
        "unit: g",
        {a: UNIT.format(a, "g") for a in ("ax", "ay", "az")},
    ),
    "without gravity": (
        lambda c: {**c, "az": 0 * TIME},
        "world_without_gravity",
        {"imu": ", acceleration: world_without_gravity"},
    ),
    "z down": (lambda c: scaled(c, -1, "az"), "points down", {"az": "{column: az, scale: -1}"}),
    "y axis up": (lambda c: renamed(c, ay="az", az="ay"), "y axis is vertical", {"ay": "az", "az": "ay"}),
}
DRONE = {
    "degrees": (
        lambda c: scaled(c, DEGREE, "roll", "pitch", "yaw"),
        "degrees",
        {name: UNIT.format(name, "deg") for name in ("roll", "pitch", "yaw")},
    ),
    "north, east, down": (
        lambda c: scaled(c, -1, "y", "z", "pitch", "yaw"),
        "axes: ned",
        {"pose": ", axes: ned", "odometry": ", axes: ned"},
    ),
    "centimetres": (lambda c: scaled(c, 100, "x", "y", "z"), "in mm or cm", {n: UNIT.format(n, "cm") for n in "xyz"}),
}
CASES = [("gritsbot_x", name, *case) for name, case in GROUND.items()]
CASES += [("crazyflie_2x", name, *case) for name, case in DRONE.items()]


@pytest.mark.parametrize(("robot", "columns"), [("gritsbot_x", ground()), ("crazyflie_2x", drone())])
def test_a_log_as_its_mapping_says_is_imported(tmp_path, robot, columns):
    assert imported(tmp_path, columns, robot).report["implausible"] == []


@pytest.mark.parametrize(("robot", "name", "spoilt", "remedy", "mended"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_wrong_units_and_axes_are_refused_with_a_remedy_that_works(tmp_path, robot, name, spoilt, remedy, mended):
    columns = spoilt(ground() if robot == "gritsbot_x" else drone())
    with pytest.raises(TestudoError, match="bot: ") as error:
        imported(tmp_path, columns, robot)
    assert remedy in str(error.value)
    assert "--allow-implausible" in str(error.value)
    assert not (tmp_path / "run").exists()
    if mended is not None:
        assert imported(tmp_path, columns, robot, **mended).report["implausible"] == []
