"""Several bags of one run: offset and drift of their clocks are found, or the merge is refused."""

import numpy as np
import pytest
from tests.runs.importing.bag_maker import NANO, START_NS, drive, mapping, message, write_bag

from testudo_runs.importing.bags import BagError, is_complete_mapping, propose_map, read_bags
from testudo_runs.importing.bags.clock_offsets import ClockMarks, between
from testudo_runs.importing.bags.motion_matching import motion_of

COUNT, RATE = 1200, 20.0
TEXT = (
    "{topic: /odom, bag: one, robot: a, role: odometry}\n{topic: /cmd_vel, bag: one, robot: a, role: command}\n"
    "{topic: /odom, bag: two, robot: b, role: odometry}\n{topic: /mocap/a, robot: a, role: pose}\n"
    "{topic: /mocap/b, robot: b, role: pose}"
)


def two_bags(folder, offset_s, drift, *, shared=True, capture="one"):
    """Write two bags; the clock of `two` shows ``(t - offset_s) / (1 + drift)`` where that of `one` shows t.

    Both robots record what motion capture sends if ``shared``; else only the one that ``capture`` names does.
    """
    rng = np.random.default_rng(0)
    rows = {"one": [], "two": []}
    ways = {"a": drive(COUNT, RATE, seed=1), "b": drive(COUNT, RATE, seed=2)}

    def clock(bag, time_s):
        since = time_s if bag == "one" else (time_s - offset_s) / (1 + drift)
        return START_NS + round(since * NANO)

    for k in range(COUNT):
        time_s = k / RATE
        for bag, robot in (("one", "a"), ("two", "b")):
            _, command, poses, velocity = (part[k] for part in ways[robot])
            stamp = clock(bag, time_s)
            odometry = np.concatenate([poses, velocity])
            rows[bag].append(("/odom", "Odometry", stamp + 1_000_000, message("Odometry", stamp, odometry, "odom")))
            rows[bag].append(("/cmd_vel", "Twist", stamp, message("Twist", stamp, command)))
        for robot in "ab":
            seen = message("PoseStamped", clock("one", time_s), ways[robot][2][k])
            for bag in ("one", "two") if shared else (capture,):
                late_s = rng.gamma(2, 0.001)
                rows[bag].append((f"/mocap/{robot}", "PoseStamped", clock(bag, time_s + late_s), seen))
    return [write_bag(folder / bag, sorted(rows[bag], key=lambda row: row[2])) for bag in rows]


def read(paths, text=TEXT, **options):
    return read_bags(paths, mapping(text), lambda _: None, [], **options)


@pytest.mark.parametrize(("offset_s", "drift"), [(2.5, 0.0), (-7200.0, 5e-5)])
def test_messages_that_both_recorded_give_offset_and_drift(tmp_path, offset_s, drift):
    found = read(two_bags(tmp_path, offset_s, drift))
    clock = found.info["clocks"]["two"]
    middle = clock["at_s"] - START_NS / NANO
    assert abs(clock["offset_s"] - (offset_s + drift * middle)) < 1e-3
    assert clock["drift"] == pytest.approx(drift, abs=5e-6)
    assert clock["within_s"] < 1e-3
    assert "common messages" in clock["how"]
    believed, seen = found.robots["b"].find("odometry"), found.robots["b"].find("pose")
    assert len(seen) == COUNT  # each message once, though two bags hold it
    np.testing.assert_allclose(believed.stamp_s, seen.stamp_s, atol=1e-3)


def test_what_two_bags_hold_is_taken_once_and_by_the_clock_of_its_sender(tmp_path):
    """Robot b sends odometry and hears commands; the lab records both over the network, 20 ms late."""
    offset_s, ways = 0.4, drive(COUNT, RATE, seed=2)
    rows = {"lab": [], "robot": []}
    for k in range(COUNT):
        true_ns, own_ns = (START_NS + round((k / RATE - shift) * NANO) for shift in (0, offset_s))
        odometry = message("Odometry", own_ns, np.concatenate([ways[2][k], ways[3][k]]), "odom")
        latched = message("TFMessage", START_NS, np.ones(7), "base", f"part{k % 7}")
        for bag, now_ns in (("lab", true_ns + 20_000_000), ("robot", own_ns + 1_000_000)):
            rows[bag] += [
                ("/odom", "Odometry", now_ns, odometry),
                ("/cmd_vel", "Twist", now_ns, message("Twist", 0, ways[1][k])),
            ]
            if k < 7:  # heard when the recorder begins: the robot's begins a minute later
                rows[bag].append(("/tf_static", "TFMessage", now_ns + 60 * NANO * (bag == "robot"), latched))
    paths = [write_bag(tmp_path / bag, sorted(rows[bag], key=lambda row: row[2])) for bag in rows]
    found = read(paths, "{topic: /odom, robot: b, role: odometry}\n{topic: /cmd_vel, robot: b, role: command}")
    assert found.info["clocks"]["robot"]["offset_s"] == pytest.approx(offset_s + 0.019, abs=1e-3)
    series = found.robots["b"].find("odometry")
    assert len(series) == len(found.robots["b"].find("command")) == COUNT
    stamps = series.stamp_s + (found.start_ns - START_NS) / NANO
    # not earlier by the offset of the robot's clock; the delay of the network cannot be told from it
    np.testing.assert_allclose(stamps, np.arange(COUNT) / RATE + 0.019, atol=2e-3)


@pytest.mark.parametrize(("offset_s", "drift"), [(3.21, 0.0), (-40.0, 2e-4)])
def test_motion_that_both_saw_gives_the_offset(tmp_path, offset_s, drift):
    """Only `one` records motion capture; robot b's own odometry in `two` moves alike."""
    found = read(two_bags(tmp_path, offset_s, drift, shared=False))
    clock = found.info["clocks"]["two"]
    middle = clock["at_s"] - START_NS / NANO
    error = abs(clock["offset_s"] - (offset_s + drift * middle))
    assert error < 0.005
    assert "motion of b" in clock["how"]
    np.testing.assert_allclose(
        found.robots["b"].find("odometry").stamp_s, found.robots["b"].find("pose").stamp_s, atol=0.01
    )


def test_nothing_in_common_is_refused_unless_the_offset_is_given(tmp_path):
    paths = two_bags(tmp_path, 1.0, 0.0, shared=False)
    text = "\n".join(line for line in TEXT.splitlines() if "mocap" not in line)
    with pytest.raises(BagError, match=r"the clock of two cannot be related to that of one: .* --offset two=SECONDS"):
        read(paths, text)
    found = read(paths, text, offsets={"two": 1.0})
    np.testing.assert_allclose(found.robots["b"].find("odometry").stamp_s, np.arange(COUNT) / RATE, atol=1e-6)
    assert "as given" in found.info["clock_sentences"][0]
    with pytest.raises(BagError, match="--offset three: no such bag; there are one, two"):
        read(paths, text, offsets={"three": 1.0})


def test_the_proposal_for_several_bags_names_robots_by_their_bags(tmp_path):
    paths = two_bags(tmp_path, 2.5, 0.0)
    proposal = propose_map(paths)
    found = read_bags(paths, is_complete_mapping(proposal), lambda _: None, [])
    assert {name: set(robot.series) for name, robot in found.robots.items()} == {
        "one": {"pose", "odometry", "command"},
        "two": {"pose", "odometry", "command"},
    }
    for robot in found.robots.values():  # the body that moves as the robot does is its pose
        np.testing.assert_allclose(robot.find("pose").values[:, :2], robot.find("odometry").values[:, :2], atol=1e-6)


def test_the_interval_of_an_offset_covers_the_truth():
    """Thirty pairs of clocks laid together by a robot's motion: odometry with 3 % too much way, in axes of its own."""
    nothing, inside, errors = np.zeros(0, np.int64), 0, []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        offset_s, drift, turned = rng.uniform(-30, 30), rng.uniform(-1e-4, 1e-4) * (seed % 2), rng.uniform(-3, 3)
        count = int(rng.uniform(60, 180) * RATE)
        times, _, poses, velocity = drive(count, RATE, seed=seed)
        seen, believed = poses.copy(), poses.copy()
        seen[:, :2] += rng.normal(0, 0.002, (count, 2))
        yaw = 2 * np.arctan2(poses[:, 5], poses[:, 6]) + turned
        turn = np.array([[np.cos(turned), np.sin(turned)], [-np.sin(turned), np.cos(turned)]])
        believed[:, :2], believed[:, 5], believed[:, 6] = 1.03 * poses[:, :2] @ turn, np.sin(yaw / 2), np.cos(yaw / 2)
        kept = rng.random(count) > 0.1
        one = motion_of("pose", START_NS / NANO + times, seen)
        two = motion_of(
            "odometry",
            START_NS / NANO + (times[kept] - offset_s) / (1 + drift),
            np.concatenate([believed, velocity], axis=1)[kept],
        )
        clock = between(
            ClockMarks("two", nothing, nothing, {"r": [two]}), ClockMarks("one", nothing, nothing, {"r": [one]})
        )
        error = abs(clock.offset_s - (offset_s + drift * (clock.at_s - START_NS / NANO)))
        errors.append(error)
        inside += error <= clock.within_s
    assert inside >= 27
    assert np.median(errors) < 1e-3
