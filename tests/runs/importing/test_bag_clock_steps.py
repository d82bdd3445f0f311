"""A clock that is set while a bag is recorded: mended where the other clock tells by how much, else the bag is cut."""

import json

import numpy as np
import pytest
from tests.runs.importing.bag_maker import NANO, START_NS, drive, mapping, message, write_bag

from testudo_deploy.cli import main
from testudo_runs.importing.bags import propose_map, read_bags
from testudo_runs.recording.load import load_recording

COUNT, SET_AT = 600, 300
RATE = 50.0
BOTH = "{topic: /r0/odom, robot: r0, role: odometry}\n{topic: /r0/cmd_vel, robot: r0, role: command}"


def bag_of(
    path,
    *,
    recorder_s=0.0,
    sender_s=0.0,
    command="Twist",
    late_s=lambda k, rng: rng.exponential(0.001),
    speed=1.0,
    storage="mcap",
):
    """Write a drive; from message `SET_AT` on the clocks of recorder and sender show so much more."""
    times, commands, poses, velocity = drive(COUNT, RATE, seed=1, lag_s=0.2)
    rng, rows = np.random.default_rng(0), []
    for k, time_s in enumerate(times):  # in the order in which they arrive
        recorded, stamped = (
            START_NS + round((time_s + (k >= SET_AT) * by_s) * NANO) for by_s in (recorder_s, sender_s)
        )
        stamped = round(START_NS + (stamped - START_NS) * speed)
        values = np.concatenate([poses[k], velocity[k]])
        late = late_s(k, rng)
        rows += [
            (
                time_s + late,
                (
                    "/r0/odom",
                    "Odometry",
                    recorded + round(late * NANO),
                    message("Odometry", stamped, values, "odom", "base_link"),
                ),
            ),
            (time_s, ("/r0/cmd_vel", command, recorded, message(command, stamped, commands[k]))),
        ]
    return write_bag(path, [row for _, row in sorted(rows, key=lambda row: row[0])], storage=storage)


def read(bag, text=BOTH):
    damage = []
    found = read_bags([bag], mapping(text), lambda _: None, damage)
    return found, damage


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("command", ["Twist", "TwistStamped"])
@pytest.mark.parametrize("by_s", [-5.0, -0.4, 0.4, 5.0, 3600.0])
def test_a_recorder_that_was_set_costs_nothing_and_is_told(tmp_path, by_s, command, storage):
    """Stamps go on, so they are kept; commands without stamps are moved by what the stamps of the odometry show."""
    found, damage = read(bag_of(tmp_path / "lab", recorder_s=by_s, command=command, storage=storage))
    for role in ("odometry", "command"):
        series = found.robots["r0"].find(role)
        np.testing.assert_allclose(series.stamp_s, np.arange(COUNT) / RATE, atol=0.003)
        np.testing.assert_allclose(series.received_s, np.arange(COUNT) / RATE, atol=0.02)
    assert not damage
    (step,) = found.info["clock_steps"]
    assert step["by_s"] == pytest.approx(by_s, abs=0.002)
    assert step["at_s"] == pytest.approx((SET_AT - 1) / RATE, abs=0.02)
    assert any("clock of the recorder was set" in note for note in found.info["notes"])


@pytest.mark.parametrize("by_s", [-5.0, -0.4, 5.0])
def test_a_sender_that_was_set_is_brought_back_to_the_recorder(tmp_path, by_s):
    found, damage = read(bag_of(tmp_path / "lab", sender_s=by_s))
    for role in ("odometry", "command"):
        np.testing.assert_allclose(found.robots["r0"].find(role).stamp_s, np.arange(COUNT) / RATE, atol=0.003)
    assert not damage
    assert found.info["clock_steps"][0]["by_s"] == pytest.approx(by_s, abs=0.002)
    assert "/r0/odom (r0, odometry): the clock of its stamps" in found.info["clock_steps"][0]["whose"]


@pytest.mark.parametrize("command", ["Twist", "TwistStamped"])
def test_clocks_that_were_both_set_back_cut_the_bag(tmp_path, command, capsys):
    """Nothing tells by how much: the second part would be laid into the first one."""
    bag = bag_of(tmp_path / "lab", recorder_s=-2.0, sender_s=-2.0, command=command)
    (tmp_path / "map.yaml").write_text(propose_map(bag).text)
    assert main(["import", str(bag), str(tmp_path / "run"), "--map", str(tmp_path / "map.yaml")]) == 1
    said = capsys.readouterr().out
    assert "Clock jumps" in said
    assert "Lost" in said
    report = json.loads((tmp_path / "run" / "import.json").read_text())
    assert report["clock_steps"][0]["cut"]
    assert "cut there; 600 messages from then on are left out" in report["losses"][0]["why"]
    robot = load_recording(tmp_path / "run").robots["r0"]
    for role in ("odometry", "command"):
        np.testing.assert_allclose(robot.find(role).stamp_s, np.arange(SET_AT) / RATE, atol=0.003)


def test_a_recorder_that_was_set_back_with_no_stamps_in_the_bag_cuts_it(tmp_path):
    bag = bag_of(tmp_path / "lab", recorder_s=-2.0)
    found, damage = read(bag, "{topic: /r0/cmd_vel, robot: r0, role: command}")
    assert len(found.robots["r0"].find("command")) == SET_AT
    assert len(damage) == 1


def test_stamps_that_go_back_where_delays_are_too_uneven_to_tell_by_how_much_are_cut(tmp_path):
    bag = bag_of(tmp_path / "lab", sender_s=-1.0, late_s=lambda k, _: 0.4 + 0.4 * np.sin(k / 40))
    found, damage = read(bag)
    series = found.robots["r0"].find("odometry")
    assert len(series) == SET_AT
    assert (np.diff(series.stamp_s) >= 0).all()
    assert ["the stamps step back permanently" in text for text in damage] == [True]


@pytest.mark.parametrize(
    "late_s",
    [
        lambda k, _: max(0.0, 2.0 - abs(k - SET_AT) / RATE) * (k >= SET_AT),
        lambda k, rng: rng.exponential(0.3),
        lambda k, _: 0.5 * (k == SET_AT),
    ],
)
def test_late_messages_are_no_clock_that_was_set(tmp_path, late_s):
    found, damage = read(bag_of(tmp_path / "lab", late_s=late_s))
    np.testing.assert_allclose(np.sort(found.robots["r0"].find("odometry").stamp_s), np.arange(COUNT) / RATE, atol=1e-6)
    assert not found.info["clock_steps"]
    assert not damage


def test_a_clock_of_another_speed_is_no_clock_that_was_set(tmp_path):
    found, damage = read(bag_of(tmp_path / "lab", speed=0.5))
    np.testing.assert_allclose(found.robots["r0"].find("odometry").stamp_s, np.arange(COUNT) / RATE, atol=0.02)
    assert any("of a clock that runs at " in note for note in found.info["notes"])
    assert not found.info["clock_steps"]
    assert not damage


def test_a_bag_that_was_written_topic_by_topic_is_whole(tmp_path):
    """The times of recording go back where the second topic begins, and in none of the topics."""
    times, commands, poses, velocity = drive(COUNT, RATE, seed=1)
    stamps = (START_NS + np.rint(times * NANO)).astype(np.int64).tolist()
    rows = [
        ("/r0/odom", "Odometry", at, message("Odometry", at, np.concatenate([poses[k], velocity[k]]), "odom"))
        for k, at in enumerate(stamps)
    ]
    rows += [("/r0/cmd_vel", "Twist", at, message("Twist", at, commands[k])) for k, at in enumerate(stamps)]
    found, damage = read(write_bag(tmp_path / "lab", rows))
    assert len(found.robots["r0"].find("odometry")) == len(found.robots["r0"].find("command")) == COUNT
    assert not damage
    assert not found.info["clock_steps"]
