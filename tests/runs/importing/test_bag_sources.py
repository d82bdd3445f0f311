"""Bags through the verb, with a mapping and with the proposed one, and what inspect shows of them."""

import json

import numpy as np
import pytest
from tests.runs.importing.bag_maker import DEFINITIONS, NANO, START_NS, drive, make_older, message, write_bag
from tests.runs.importing.made_logs import write_team

from testudo_analysis.commands.import_run import import_verb
from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.authentication.message_codes import MessageSigner
from testudo_deploy.authentication.process_epochs import ProcessEpochs
from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.inspection import inspect_recording
from testudo_runs.importing.run_import import ImportRequest, import_run, parse_offsets
from testudo_runs.recording.load import load_recording

COUNT = 600


def bag_of(path, robot, seed, topics=("odom", "cmd_vel"), **options):
    times, command, poses, velocity = drive(COUNT, seed=seed, lag_s=0.2)
    rows = []
    for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
        rows.append(
            (
                f"/{robot}/{topics[0]}",
                "Odometry",
                stamp + 2_000_000,
                message("Odometry", stamp, np.concatenate([poses[k], velocity[k]]), "odom", "base_link"),
            )
        )
        rows.append((f"/{robot}/{topics[1]}", "Twist", stamp, message("Twist", stamp, command[k])))
    return write_bag(path, rows, **options)


def test_a_bag_of_a_keyed_fleet_is_read_as_one_without_codes(tmp_path):
    """`ros2 bag record` keeps the authentication codes behind the messages."""
    key = FleetKey(bytes(32))
    signer = MessageSigner(key, "/r0/odom", ProcessEpochs(key, lambda data: None))
    for name, options in (("plain", {}), ("signed", {"signed": signer.sign})):
        bag_of(tmp_path / name, "r0", 1, **options)
        assert import_verb((tmp_path / name, tmp_path / f"run_{name}"), robot_type=("turtlebot4",), yes=True) == 0
    plain, signed = (load_recording(tmp_path / f"run_{name}").robots["r0"] for name in ("plain", "signed"))
    for role in ("odometry", "command"):
        assert np.array_equal(signed.find(role).values, plain.find(role).values)


def test_a_folder_with_a_bag_is_imported_by_the_proposed_mapping(tmp_path):
    bag_of(tmp_path / "logs" / "morning", "r0", 1)
    run = tmp_path / "run"
    assert import_verb((tmp_path / "logs", run), robot_type=("turtlebot4",), yes=True) == 0
    found = load_recording(run)
    assert found.robots["r0"].robot_type == "turtlebot4"
    assert len(found.robots["r0"].find("odometry")) == len(found.robots["r0"].find("command")) == COUNT
    report = json.loads((run / "import.json").read_text())
    assert "topic: /r0/odom" in report["maps"][0]["text"]
    assert [source["name"] for source in report["sources"]] == ["morning.mcap"]
    with pytest.raises(TestudoError, match="accept it with --yes"):
        import_verb((tmp_path / "logs", tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    values = inspect_recording(run).values["robots"]["r0"]["roles"]["odometry"]
    assert values["delay_median_s"] == pytest.approx(0.002, abs=1e-6)


def test_inspect_shows_a_bag_and_the_mapping_to_save(tmp_path, capsys):
    bag = bag_of(tmp_path / "lab", "r0", 2)
    report = inspect_recording(bag)
    report.show(None)
    assert report.values["robots"]["r0"]["roles"]["odometry"]["samples"] == COUNT
    assert "topic: /r0/odom" in capsys.readouterr().out
    (tmp_path / "own.yaml").write_text(report.values["proposal"])
    with_map = inspect_recording(bag, str(tmp_path / "own.yaml"))
    assert with_map.values["robots"] == report.values["robots"]


def test_inspect_reads_messages_by_definitions_in_a_folder(tmp_path, capsys):
    """A bag without definitions: without the folder a topic is not known, with it the rigid body is a robot's pose."""
    times, command, poses, _ = drive(COUNT, seed=5, lag_s=0.2)
    rows = []
    for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
        rows.append(("/poses", "NamedPoseArray", stamp, message("NamedPoseArray", stamp, poses[k], "world", "cf1")))
        rows.append(("/cf1/cmd_vel", "Twist", stamp, message("Twist", stamp, command[k])))
    bag = make_older(write_bag(tmp_path / "lab", rows, storage="sqlite3", version=8), 5)
    without = inspect_recording(bag)
    assert "--msg-path FOLDER makes it so" in without.values["proposal"]
    folder = tmp_path / "src" / "motion_capture_tracking_interfaces" / "msg"
    folder.mkdir(parents=True)
    for name, text in DEFINITIONS.items():
        if name.startswith(folder.parent.name):
            (folder / f"{name.rpartition('/')[2]}.msg").write_text(text)
    assert main(["inspect", str(bag), "--msg-path", str(tmp_path / "src"), "--json", str(tmp_path / "x.json")]) == 0
    values = json.loads((tmp_path / "x.json").read_text())
    assert values["robots"]["cf1"]["roles"]["pose"]["samples"] == COUNT
    assert "child: cf1" in capsys.readouterr().out
    (tmp_path / "own.yaml").write_text(values["proposal"])
    with_map = inspect_recording(bag, str(tmp_path / "own.yaml"), msg_path=(tmp_path / "src",))
    assert with_map.values["robots"]["cf1"]["roles"]["pose"]["samples"] == COUNT


def test_a_cut_bag_is_imported_as_far_as_it_holds(tmp_path):
    bag = bag_of(tmp_path / "lab", "r0", 3)
    report = inspect_recording(bag)
    (tmp_path / "own.yaml").write_text(report.values["proposal"])
    file = bag / "lab.mcap"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (bag / "metadata.yaml").unlink()
    status = import_verb((bag, tmp_path / "run"), map=str(tmp_path / "own.yaml"), json=tmp_path / "import.json")
    report = json.loads((tmp_path / "import.json").read_text()) if (tmp_path / "import.json").is_file() else None
    assert status == 1
    assert report["losses"]
    assert 0 < report["robots"]["r0"]["roles"]["odometry"]["samples"] < COUNT


def test_bags_and_logs_are_not_mixed_and_offsets_have_one_form(tmp_path):
    bag = bag_of(tmp_path / "lab", "r0", 4)
    with pytest.raises(TestudoError, match=r"not a bag, but .* is one; import logs and bags separately"):
        import_run(ImportRequest((write_team(tmp_path / "logs", 1, 20), bag)), tmp_path / "run")
    assert parse_offsets(["a=b=-0.25"]) == {"a=b": -0.25}
    for text in ("lab", "=3", "lab=soon", "lab=inf", "lab=nan"):
        with pytest.raises(TestudoError, match=r"--offset .*: expected NAME=SECONDS"):
            parse_offsets([text])


@pytest.mark.parametrize(("where", "key"), [("robot_type", r"robot_type"), ("entry", r"topics\[0\].robot_type")])
def test_a_robot_type_that_nobody_knows_is_refused_with_file_and_key(tmp_path, where, key):
    bag = bag_of(tmp_path / "lab", "r0", 1)
    text = inspect_recording(bag).values["proposal"]
    text = (
        text.replace("topics:", "robot_type: turtlebot9\ntopics:", 1)
        if where == "robot_type"
        else text.replace("role: odometry}", "role: odometry, robot_type: turtlebot9}")
    )
    (tmp_path / "own.yaml").write_text(text)
    line = ["import", str(bag), str(tmp_path / "run"), "--map", str(tmp_path / "own.yaml")]
    with pytest.raises(TestudoError, match=rf"own.yaml: {key}: robot 'turtlebot9' is not known"):
        import_verb((bag, tmp_path / "run"), map=line[-1])
    assert not (tmp_path / "run").exists()
    assert main([*line, "--robot-type", "turtlebot4"]) == 0
