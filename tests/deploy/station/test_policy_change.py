"""Another policy for a running fleet: the same robot and shield, step by step, and one file for all or no start."""

from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.admission.policy_exchange import exchanged
from testudo_deploy.contract.policy_archive import policy_bytes
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_change import (
    BEGIN,
    CHECK,
    RECORD,
    REST,
    STOP,
    PolicyChange,
    PolicyChangeError,
    PolicyInUse,
    check_exchange,
)
from testudo_deploy.station.policy_change_run import PolicyChangeRun
from testudo_deploy.supervision.modes import Event, Mode
from testudo_deploy.supervision.policy_agreement import PolicyAgreement
from testudo_deploy.supervision.supervisor import GuardReport, Supervisor
from testudo_hardware.errors import TestudoError

OLD, NEW = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("exchange"))


def change_to(path):
    return PolicyChange("1", CHECK, str(path), PolicyArtefact.load(path).sha256)


def present(fleet):
    return PolicyArtefact.load(fleet.policy).contract


def edited(fleet, name, **changes):
    """Write a policy file whose contract differs, and return its path."""
    file = fleet.file.with_name(name)
    make_tiny_policy(file, fleet.robots[0].spec, edit=lambda values: values.update(changes))
    return file


def test_only_the_policy_file_of_a_fleet_changes(fleet, tmp_path):
    other = edited(fleet, "other.onnx", scenario="swap")
    found, contract = exchanged(fleet, present(fleet), change_to(other))
    assert contract.scenario == "swap"
    assert (found.policy, found.robots, found.file) == (other, fleet.robots, fleet.file)
    # on another computer the operator's path is unknown: the file lies beside the present one
    elsewhere = PolicyChange("1", CHECK, "/operator/other.onnx", found.policy_sha256)
    assert exchanged(fleet, present(fleet), elsewhere)[0].policy == other
    again, _ = exchanged(found, contract, change_to(fleet.policy))  # and back
    assert again.policy_sha256 == fleet.policy_sha256


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arena": None}, "contract.arena: found None, expected Arena("),
        ({"decision_ticks": 7}, "contract.decision_ticks: found 7, expected"),
        ({"dead_man_s": 0.2}, "contract.dead_man_s: found 0.2, expected 0.1 "),
        ({"robot_sha256": NEW}, f"contract.robot_sha256: found {NEW}, expected"),
        ({"shield": {"separation_m": 0.1}}, "contract.shield: found ProjectionParameters("),
        ({"scenario": "swap", "team_size": 9}, ""),
    ],
)
def test_another_robot_arena_shield_or_timing_is_refused(fleet, changes, says):
    first = present(fleet)
    changed = {key: replace(first.shield, **value) if key == "shield" else value for key, value in changes.items()}
    other = first.replace(**changed)
    if not says:
        check_exchange(first, other, fleet.policy)
        return
    with pytest.raises(PolicyChangeError, match="as in the present policy") as refused:
        check_exchange(first, other, fleet.policy)
    assert says in str(refused.value)


def test_another_robot_and_another_file_are_refused(fleet, tmp_path):
    stranger = make_tiny_fleet(tmp_path, robot="turtlebot3_burger")
    with pytest.raises(PolicyChangeError, match=r"contract\.robot: found turtlebot3_burger, expected gritsbot_x"):
        exchanged(fleet, present(fleet), change_to(stranger.policy))
    with pytest.raises(PolicyChangeError, match=f"found no file with the sha256 {NEW} at .*; copy the file there"):
        exchanged(fleet, present(fleet), PolicyChange("1", CHECK, str(fleet.policy), NEW))
    broken = fleet.file.with_name("broken.onnx")
    broken.write_bytes(policy_bytes(fleet.policy)[:-20])
    with pytest.raises(TestudoError, match="found no file with the sha256"):
        exchanged(fleet, present(fleet), PolicyChange("1", CHECK, str(broken), fleet.policy_sha256))


def said(process, step, *, accepted=True, change="1"):
    return PolicyInUse(process, NEW, "c", change, step, accepted, f"{process} {step}")


def test_a_change_goes_on_when_all_have_answered_a_step():
    run = PolicyChangeRun("1", "other.onnx", NEW, ("r0",))
    everybody = ("r0/guard", "r0/policy", "task", "recorder")
    run.hear(PolicyInUse("recorder", OLD, "c"))  # there is one
    assert (run.message.step, run.silent) == (REST, ("r0/policy",))
    run.hear(said("r0/policy", REST))
    for process in everybody[:3]:
        run.hear(said(process, CHECK))
        run.hear(said(process, BEGIN, change="2"))  # an answer to something else
    assert (run.message.step, run.silent) == (CHECK, ("recorder",))
    assert run.remark == "no answer from recorder: nothing was changed"
    run.hear(said("recorder", CHECK))
    assert (run.message.step, run.silent) == (STOP, ("r0/policy",))
    run.hear(said("r0/policy", STOP))
    assert (run.message.step, run.silent) == (RECORD, ("recorder",))
    run.hear(said("recorder", RECORD))
    assert (run.message.step, run.silent) == (BEGIN, everybody[:3])
    for process in everybody[:3]:
        assert not run.done
        run.hear(said(process, BEGIN))
    assert run.done
    assert run.remark == ""


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({REST: "r0/policy"}, "refused: nothing was changed"),
        ({CHECK: "r0/guard"}, "refused: nothing was changed"),
        ({STOP: "r0/policy"}, "refused: the change is not complete, and no robot can be armed"),
        ({BEGIN: "task"}, "refused: the change is not complete, and no robot can be armed"),
    ],
)
def test_a_change_ends_at_the_first_refusal(steps, says):
    run = PolicyChangeRun("1", "other.onnx", NEW, ("r0",))
    for step in (REST, CHECK, STOP, RECORD, BEGIN):
        for process in ("r0/guard", "r0/policy", "task"):
            run.hear(said(process, step, accepted=steps.get(step) != process))
        if step in steps:
            break
    assert not run.done
    assert list(run.refusals) == list(steps.values())
    assert says in run.remark


@pytest.mark.parametrize("strict", [False, True])
def test_a_robot_is_armed_only_beside_its_own_policy(strict):
    """Half-changed fleets stay braked; the control is the same fleet with one hash everywhere."""
    agreement = PolicyAgreement("r0/policy", NEW, ("r0/guard", "r1/policy", "task"), strict=strict)
    robot = Supervisor(now_s=0.0)
    now_s = 0.0

    def arm(*heard):
        nonlocal now_s
        now_s += 0.1
        for process, sha256 in heard:
            agreement.hear(PolicyInUse(process, sha256, "c"), now_s)
        robot.see_policies(agreement.reason(now_s))
        robot.hear_guard(GuardReport(now_s, "silence"))
        robot.observe(now_s)
        answer = robot.request(Event.ARM, now_s)
        if answer.granted:
            robot.request(Event.DEACTIVATE, now_s)
        return answer

    assert arm().granted is not strict
    assert ("said nothing yet" in arm(("r0/guard", NEW)).sentence) is strict
    refused = arm(("task", NEW), ("r1/policy", OLD))
    assert not refused.granted
    assert refused.code == "policy_differs"
    assert "r1/policy uses aaaaaaaa, r0/policy bbbbbbbb" in refused.sentence
    assert arm(("r1/policy", NEW)).granted
    assert not arm(("recorder", OLD)).granted  # its run would hold the wrong policy
    assert "recorder has none" in arm(("recorder", "")).sentence
    assert arm(("recorder", NEW)).granted
    assert arm(("r9/policy", OLD)).granted  # of another fleet
    now_s += 4.0  # all of them have ended
    assert arm().granted is not strict
    assert not agreement.reason(now_s, lost=("r1",)).startswith("policy_differs: r1") or not strict


def test_a_robot_that_drives_goes_on():
    robot = Supervisor(now_s=0.0)
    robot.hear_guard(GuardReport(0.0, "silence"))
    robot.observe(0.0)
    robot.request(Event.ARM, 0.0)
    robot.hear_guard(GuardReport(0.0, ""))
    robot.observe(0.1)
    robot.request(Event.START, 0.1)
    robot.see_policies("policy_differs: r1/policy has none")
    robot.observe(0.2)
    assert robot.mode is Mode.ACTIVE
