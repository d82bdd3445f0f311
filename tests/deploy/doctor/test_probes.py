"""The probes find planted faults on this machine, and the remedy that the doctor names removes them."""

import os
import re
import socket
import subprocess
import sys

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.authentication.fleet_key import new_key, write_key
from testudo_deploy.doctor.finding import Level
from testudo_deploy.doctor.fleet_checks import check_fleet_file, fleet_facts
from testudo_deploy.doctor.machine_checks import NEEDED_PRIORITY, check_machine, check_machine_code, check_packages
from testudo_deploy.doctor.machine_facts import (
    MachineCodeFact,
    clock_fact,
    machine_code_fact,
    machine_facts,
    package_facts,
    processor_fact,
)
from testudo_deploy.doctor.ros_checks import check_discovery, check_distribution, check_ros
from testudo_deploy.doctor.ros_facts import NetworkFact, RosFact, network_fact, ros_fact, unknown_hosts


def plain(**variables):
    """Return the environment of a new shell, without what ROS reads or its wheels have set, with some variables."""
    of_ros = ("ROS_", "_ROS_", "RMW_", "FAST", "AMENT", "LD_LIBRARY_PATH", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(of_ros)}
    return kept | variables


def finding_of(findings, check):
    return next(finding for finding in findings if finding.check == check)


def test_the_facts_of_this_machine_are_complete():
    facts = machine_facts()
    checks = [finding.check for finding in check_machine(facts, runs_fleet=True, needs_clock=False)]
    assert checks == [
        *("interpreter", "packages", "device", "clock", "clock source", "CPU governor", "load", "real-time rights"),
        "machine code",
    ]
    assert {"numpy", "onnxruntime"} <= {package.name for package in facts.packages if package.fits}
    assert facts.processor.cores >= 1


def test_an_old_and_a_missing_package_are_found_in_what_a_distribution_asks_for():
    asked = ["numpy>=1.26", 'onnxruntime>=1.20; extra == "robot"', 'ruff>=0.9; extra == "dev"', "testudo[robot]"]
    packages = package_facts(asked, {"numpy": "1.24.4"})
    assert [(one.name, one.found, one.fits) for one in packages] == [
        ("numpy", "1.24.4", False),
        ("onnxruntime", None, False),
    ]
    old = check_packages(packages, runs_fleet=True)
    healed = check_packages(package_facts(asked, {"numpy": "1.26.0", "onnxruntime": "1.20"}), runs_fleet=True)
    assert (old.level, healed.level) == (Level.FAILED, Level.OK)


def test_governor_and_clock_source_are_read_from_the_kernel(tmp_path):
    cpu = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    source = tmp_path / "sys/devices/system/clocksource/clocksource0"
    for folder, name, text in ((cpu, "scaling_governor", "powersave"), (source, "current_clocksource", "hpet")):
        folder.mkdir(parents=True)
        (folder / name).write_text(f"{text}\n")
    assert processor_fact(tmp_path).governors == ("powersave",)
    assert clock_fact(tmp_path).source == "hpet"


def test_a_process_without_realtime_rights_is_found():
    code = (
        "import os, resource; from testudo_deploy.doctor.machine_facts import processor_fact; "
        "resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0)); os.geteuid() or os.setuid(65534); "
        "fact = processor_fact(); print(fact.realtime_limit, fact.realtime_works)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "False"]


def test_a_missing_or_failing_compiler_is_found_only_where_machine_code_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TESTUDO_COMPILED", "1")
    assert machine_code_fact() == MachineCodeFact(asked_for=True)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert "no C compiler was found" in machine_code_fact().refused
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\necho 'fatal error: math.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o700)
    finding = check_machine_code(machine_code_fact())
    assert "math.h: No such file" in finding.found
    assert "libc6-dev" in finding.remedy
    broken.write_text("neither a program nor a script")  # which the system does not start
    assert "cannot be tried" in machine_code_fact().refused
    monkeypatch.delenv("TESTUDO_COMPILED")
    assert check_machine_code(machine_code_fact()).level == Level.OK


def test_the_needed_priority_is_the_highest_of_the_nodes():
    from testudo_nodes.common.process_priority import PRIORITIES

    assert max(PRIORITIES.values()) == NEEDED_PRIORITY


def test_a_sourced_distribution_beside_the_wheels_is_named_and_the_remedy_removes_it(tmp_path):
    pytest.importorskip("rclpy")
    broken = tmp_path / "opt/ros/jazzy/lib/python3.12/site-packages"
    (broken / "rclpy").mkdir(parents=True)
    (broken / "rclpy/__init__.py").write_text("raise ImportError('librcl.so: undefined symbol: rcutils_x')\n")
    environment = plain(ROS_DISTRO="jazzy", AMENT_PREFIX_PATH=str(tmp_path / "opt/ros/jazzy"), PYTHONPATH=str(broken))
    mixed = ros_fact(environment)
    finding = check_distribution(mixed, "3.12.1")
    assert finding.level == Level.FAILED
    assert mixed.sourced == ("jazzy",)
    assert re.search(r"mixed distributions: jazzy \(sourced\) and \w+ \(wheels.*undefined symbol", finding.found)
    unset = re.search(r"`env ((?:-u \w+ )+)", finding.remedy)[1].split()[1::2]
    healed = {name: value for name, value in environment.items() if name not in unset}
    assert check_distribution(ros_fact(healed), "3.12.1").level == Level.OK


def test_a_middleware_that_is_not_installed_is_named_and_the_remedy_removes_it():
    pytest.importorskip("rclpy")
    environment = plain(RMW_IMPLEMENTATION="rmw_nothing_cpp")
    finding = finding_of(check_ros(ros_fact(environment), NetworkFact(("a",)), "3.12", several_hosts=False), "RMW")
    assert finding.level == Level.FAILED
    assert "RMW_IMPLEMENTATION asks for rmw_nothing_cpp" in finding.found
    assert finding.remedy.startswith("unset RMW_IMPLEMENTATION")
    healed = check_ros(ros_fact(plain()), NetworkFact(("a",)), "3.12", several_hosts=False)
    assert finding_of(healed, "RMW").level == Level.OK


def test_a_profile_for_this_machine_only_is_refused_for_several_computers():
    from testudo_deploy.launch.ros_domain import PROFILE

    fact = RosFact({"FASTDDS_DEFAULT_PROFILES_FILE": PROFILE})
    assert check_discovery(fact, several_hosts=True).level == Level.FAILED
    assert check_discovery(fact, several_hosts=False).level == Level.OK


def test_multicast_is_tried_on_every_interface():
    found = network_fact()
    names = {name for _, name in socket.if_nameindex()}
    assert {*found.heard, *found.deaf} <= names
    assert found.first_ephemeral_port < found.last_ephemeral_port


def test_a_host_without_an_address_is_found():
    assert unknown_hosts(["localhost", "no-such-host.invalid", "localhost"]) == ("no-such-host.invalid",)


def test_faults_of_a_fleet_file_are_named_and_removed_as_the_remedies_say(tmp_path):
    fleet = make_tiny_fleet(tmp_path)
    file, key = tmp_path / "fleet.yaml", tmp_path / "fleet.key"
    sound = file.read_text()

    def checked():
        return check_fleet_file(fleet_facts(file))

    assert {finding.check: finding.level for finding in checked()} == {
        "fleet file": Level.OK,
        "policy": Level.OK,
        "calibration": Level.WARNING,  # the file that ships holds estimates
        "hosts": Level.OK,
        "fleet key": Level.WARNING,
    }

    file.write_text(sound.replace("robots:", "robotz:"))
    assert "fleet.robots: missing" in finding_of(checked(), "fleet file").found

    file.write_text(f"{sound}\nkey_file: fleet.key\n")
    write_key(new_key(), key)
    key.chmod(0o644)
    finding = finding_of(checked(), "fleet key")
    assert finding.level == Level.FAILED
    subprocess.run(finding.remedy.split(), check=True)
    assert finding_of(checked(), "fleet key").level == Level.OK

    file.write_text(sound.replace(fleet.policy_sha256, "ab" * 32))
    finding = finding_of(checked(), "policy")
    assert finding.level == Level.FAILED
    right = re.search(r"policy_sha256: (\w{64})", finding.remedy)[1]
    file.write_text(sound.replace(fleet.policy_sha256, right))
    assert finding_of(checked(), "policy").level == Level.OK

    file.write_text(sound.replace("policy: policy.onnx", "policy: other.onnx"))
    finding = finding_of(checked(), "policy")
    assert finding.level == Level.FAILED
    assert f"copy the policy file to {tmp_path / 'other.onnx'}" in finding.remedy

    file.write_text(sound.replace("goal:", "goal_: 0\n    goal:", 1))
    assert "goal_" in finding_of(checked(), "fleet file").found


def test_static_peers_need_the_profile_that_reaches_every_process():
    from testudo_deploy.launch.ros_domain import PEERS_PROFILE, PROFILE_VARIABLE

    peers = {"ROS_STATIC_PEERS": "10.0.0.1;10.0.0.2"}
    found = check_discovery(RosFact(peers, rmw="rmw_fastrtps_cpp"), several_hosts=True)
    assert (found.level, found.remedy) == (Level.WARNING, f"export {PROFILE_VARIABLE}={PEERS_PROFILE}")
    named = peers | {PROFILE_VARIABLE: PEERS_PROFILE}
    assert check_discovery(RosFact(named, rmw="rmw_fastrtps_cpp"), several_hosts=True).level == Level.OK
    assert check_discovery(RosFact(peers, rmw="rmw_cyclonedds_cpp"), several_hosts=True).level == Level.OK
