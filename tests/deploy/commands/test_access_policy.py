"""The sros2 access policy of a fleet: who may publish, subscribe, serve and call, and nobody else."""

import json
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.authentication.fleet_key import load_key
from testudo_deploy.authentication.process_epochs import EPOCHS_TOPIC
from testudo_deploy.cli import main
from testudo_deploy.commands.security import enclaves, environment_lines, keystore_script, policy_xml
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_deploy.launch.launch_plan import WATCHERS, ProcessPlan, plan
from testudo_deploy.launch.process_interfaces import process_interfaces
from testudo_deploy.launch.signed_topics import signed_topics
from testudo_deploy.launch.topic_names import ESTOP_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import load_link


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 3)


def test_a_fleet_key_is_made_once_and_kept_out_of_git(tmp_path, capsys):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("runs/")
    fleet = make_tiny_fleet(tmp_path, 2)
    assert fleet.key_file is None
    assert main(["security", str(fleet.file), "--key"]) == 0
    keyed = load_fleet(fleet.file)
    assert keyed.key_file == tmp_path / "fleet.key"
    key = load_key(keyed.key_file)
    out = capsys.readouterr().out
    assert key.identifier in out
    assert key.secret.hex() not in out
    assert (tmp_path / ".gitignore").read_text().splitlines() == ["runs/", "fleet.key"]
    assert main(["security", str(fleet.file), "--key"]) != 0
    assert load_key(keyed.key_file) == key  # the second request changed nothing
    assert main(["security", str(fleet.file)]) != 0  # neither a key nor a folder
    save_fleet(keyed, tmp_path / "copy.yaml")
    assert load_fleet(tmp_path / "copy.yaml").key_file == keyed.key_file
    topic = process_interfaces(plan(keyed, run_folder=None)[0], keyed)
    assert EPOCHS_TOPIC in topic.publishes & topic.subscribes


def test_commands_and_odometry_are_signed_where_the_driver_is_ours(fleet):
    always = {"/r0/peer_state", "/r0/tick", "/r0/cmd_vel_policy", "/r0/mode", "/r0/guard_status"}
    assert always | {"/r0/cmd_vel", "/r0/odom"} <= signed_topics(fleet, "sim")
    vendors = signed_topics(fleet, "hw")
    assert always <= vendors
    assert not {"/r0/cmd_vel", "/r0/odom"} & vendors
    assert "/estop" not in signed_topics(fleet, "sim")  # everyone may stop the fleet


def who(found, rule, topic):
    """Return the enclaves that may do something on a topic."""
    return {item.path for item in found if any(fnmatchcase(topic, name) for name in getattr(item.interfaces, rule))}


def test_every_process_of_the_plan_has_an_enclave_and_is_started_with_it(fleet, tmp_path):
    found = {item.path: item for item in enclaves(fleet)}
    processes = plan(fleet, run_folder=tmp_path / "run", watch=WATCHERS)
    assert {process.enclave for process in processes} == set(found) - {"/testudo/operator"}
    for process in processes:
        assert process.enclave_arguments == ["--enclave", f"/testudo/{process.label}"]
        assert found[process.enclave].robot == process.namespace  # where the keys have to be


@pytest.mark.parametrize("backend", ["sim", "hw"])
def test_only_the_guard_commands_wheels_and_only_the_policy_commands_the_guard(fleet, backend):
    found = enclaves(fleet, backend)
    for name in fleet.names:
        assert who(found, "publishes", f"/{name}/cmd_vel") == {f"/testudo/{name}/guard"}
        assert who(found, "publishes", f"/{name}/cmd_vel_policy") == {f"/testudo/{name}/policy"}
        assert who(found, "publishes", f"/{name}/peer_state") == {f"/testudo/{name}/policy"}
        assert who(found, "publishes", f"/{name}/guard_status") == {f"/testudo/{name}/guard"}
        source = "/testudo/plant" if backend == "sim" else f"/testudo/{name}/driver"
        assert who(found, "publishes", f"/{name}/odom") == {source}
        assert who(found, "calls", f"/{name}/guard/rearm") == {"/testudo/operator"}
    assert who(found, "publishes", ESTOP_TOPIC) == {"/testudo/operator", "/testudo/emergency_stop"}


def test_nobody_may_break_robots_or_set_parameters(fleet):
    found = enclaves(fleet)
    assert not who(found, "publishes", "/r0/plant_fault")
    for item in found:
        assert not [name for name in item.interfaces.calls if "parameter" in name]


def test_no_policy_hears_the_truth_and_no_robot_commands_another(fleet):
    found = enclaves(fleet)
    assert who(found, "subscribes", "/r1/truth") == {"/testudo/recorder"}
    own = {item.path: item.interfaces for item in found}
    said = own["/testudo/r0/policy"].publishes | own["/testudo/r0/guard"].publishes
    assert not [name for name in said if name.startswith(("/r1", "/r2"))]


def test_topics_are_those_that_the_links_name_and_the_tracking_system_of_all(fleet):
    link = LinkChoice("turtlebot4", load_link("turtlebot4"), {"cmd_vel": "base/cmd", "pose": "/mocap/poses"})
    pose = PoseSource("mocap", "world", 0.0, 0.1)
    robots = tuple(replace(robot, link=link, pose=pose) for robot in fleet.robots)
    found = enclaves(replace(fleet, robots=robots), "hw")
    assert who(found, "publishes", "/r1/base/cmd") == {"/testudo/r1/guard"}
    assert who(found, "subscribes", "/r1/base/cmd") == {"/testudo/r1/driver", "/testudo/recorder"}
    assert who(found, "subscribes", "/mocap/poses") >= {f"/testudo/{name}/policy" for name in fleet.names}
    assert not who(found, "publishes", "/r1/cmd_vel")


def test_transforms_are_heard_where_they_place_the_odometry(fleet):
    robots = tuple(replace(robot, pose=PoseSource("tf", "map", 0.0, 0.1)) for robot in fleet.robots)
    found = enclaves(replace(fleet, robots=robots), "hw")
    assert "/testudo/r0/policy" in who(found, "subscribes", "/tf")
    assert who(found, "publishes", "/tf") == {f"/testudo/{name}/driver" for name in fleet.names}


def test_the_file_permits_what_the_table_says_by_name(fleet):
    found = enclaves(fleet)
    policy = ET.fromstring(policy_xml(found))  # noqa: S314 -- our own
    assert (policy.tag, policy.attrib) == ("policy", {"version": "0.2.0"})
    read = {}
    for enclave in policy.iterfind("enclaves/enclave"):
        (profile,) = enclave.iterfind("profiles/profile")
        rules = read[enclave.get("path"), profile.get("ns"), profile.get("node")] = {}
        for listed in profile:
            ((rule, word),) = listed.attrib.items()
            assert word == "ALLOW"
            assert all(f"{item.tag}s" == listed.tag for item in listed)
            rules[rule] = {item.text for item in listed}
    for item in found:
        may, rules = item.interfaces, read[item.path, f"/{item.namespace}", item.node]
        assert (rules["publish"], rules["subscribe"], rules["reply"]) == (may.publishes, may.subscribes, may.serves)
        assert rules.get("request", set()) == may.calls
    assert len(read) == len(found)


def test_the_script_makes_keys_and_permissions_of_each_enclave(fleet, tmp_path):
    found = enclaves(fleet)
    tool = tmp_path / "bin" / "ros2"  # says how it was called, in place of the one with sros2
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$ROS_DOMAIN_ID $*"\n')
    script = tmp_path / "make_keystore.sh"
    script.write_text(keystore_script(found, 7))
    for file in (tool, script):
        file.chmod(0o755)
    result = subprocess.run(
        [script], capture_output=True, text=True, check=True, cwd="/", env={"PATH": f"{tool.parent}:/usr/bin:/bin"}
    )
    expected = ["7 security create_keystore keystore"]
    for item in found:
        expected += [
            f"7 security create_enclave keystore {item.path}",
            f"7 security create_permission keystore {item.path} policy.xml",
        ]
    assert result.stdout.splitlines() == expected


def test_the_verb_writes_policy_and_script_and_says_what_comes_next(fleet, tmp_path, capsys):
    folder, values = tmp_path / "keys", tmp_path / "values.json"
    words = ["security", str(fleet.file), str(folder), "--backend", "hw", "--domain", "7", "--json", str(values)]
    assert main(words) == 0
    assert (folder / "policy.xml").read_text() == policy_xml(enclaves(fleet, "hw"))
    assert (folder / "make_keystore.sh").stat().st_mode & 0o111
    shown = capsys.readouterr().out
    assert f"export ROS_SECURITY_KEYSTORE={folder / 'keystore'}" in shown
    assert "export ROS_DOMAIN_ID=7" in shown
    may = json.loads(values.read_text())["enclaves"]["/testudo/r0/guard"]
    assert may["publishes"] == ["/diagnostics", "/parameter_events", "/r0/cmd_vel", "/r0/guard_status", "/rosout"]

    values.unlink()
    (tmp_path / "file").write_text("")
    assert main(["security", str(fleet.file), str(tmp_path / "file")]) == 2
    assert "file: cannot be written" in capsys.readouterr().err


def test_the_environment_refuses_what_has_no_keys():
    lines = environment_lines("/a b/keystore", 7)
    assert "export ROS_SECURITY_STRATEGY=Enforce" in lines
    assert "export ROS_SECURITY_KEYSTORE='/a b/keystore'" in lines


def test_only_the_plant_serves_lock_step_and_only_if_requested(fleet):
    found = enclaves(fleet, lock_step=True)
    assert who(found, "publishes", "/clock") == who(found, "publishes", "/lock_step/turn") == {"/testudo/plant"}
    assert "/testudo/r0/guard" in who(found, "publishes", "/lock_step/done")
    real_time = enclaves(fleet)
    for topic in ("/clock", "/lock_step/turn", "/lock_step/done"):
        assert not who(real_time, "publishes", topic)
    with pytest.raises(TestudoError, match="real robots do not wait"):
        enclaves(fleet, "hw", lock_step=True)


def test_a_process_that_is_not_in_the_table_is_refused(fleet):
    with pytest.raises(TestudoError, match="process r0/joystick: not in the table of interfaces; known are policy"):
        process_interfaces(ProcessPlan("joystick", "p", "e", "m", "r0"), fleet)
