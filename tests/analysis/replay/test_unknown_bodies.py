"""A run whose shield had rows for what a scanner saw infers its shield again, and only with what it saw."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from tests.deploy.tiny_policy import make_tiny_policy
from tests.sim import recorded_run

from testudo_analysis.replay import TOLERANCE, reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_hardware.spec import load_robot

ROBOT = load_robot("gritsbot_x")


def seeing(*args, **options):
    """Return a control loop whose scanner sees two still things ahead of each robot's start, and then one."""
    loop = ControlLoop(*args, **options)

    def bodies(now_s, _):
        place, count = np.array(loop.pose.position_world), 2 if now_s < 102.0 else 1
        points = place[:, None] + np.array([[0.16, -0.1], [0.0, 0.14]])[:, :count]
        return SensedBodies(points, np.ones(count, bool), np.array(0.05), np.array(0.0))

    loop.scans = SimpleNamespace(bodies=bodies, fault=lambda _: "", hear_pose=lambda *_: None, forget=lambda: None)
    return loop


def test_the_shield_is_inferred_again_with_the_bodies_of_the_record_and_not_without(tmp_path, monkeypatch):
    make_tiny_policy(tmp_path / "policy.onnx", ROBOT)
    artefact = PolicyArtefact.load(tmp_path / "policy.onnx")
    monkeypatch.setattr(recorded_run, "ControlLoop", seeing)
    run = recorded_run.record_run(artefact, ROBOT, seconds=3.0, count=2)
    assert {len(tick.body_points_world) for tick in run.ticks["r0"] if not tick.reason} == {1, 2}
    assert reinfer(run, artefact).passed
    blind = {name: [replace(tick, body_points_world=()) for tick in ticks] for name, ticks in run.ticks.items()}
    assert not reinfer(replace(run, ticks=blind), artefact).passed
    assert max(check.error for check in reinfer(replace(run, ticks=blind), artefact).robots) > TOLERANCE
