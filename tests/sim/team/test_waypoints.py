"""Way-points through control loops and replay: robots end there, and a run infers again to the last digit."""

import dataclasses

import numpy as np
import pytest
from tests.sim.recorded_run import record_run

from testudo_analysis.replay import TOLERANCE, reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy

SPEC = load_robot("gritsbot_x")


@pytest.fixture(scope="module")
def artefact(tmp_path_factory):
    path = tmp_path_factory.mktemp("waypoint") / "policy.onnx"
    write_go_to_goal_policy(path, SPEC, waypoint=True)
    return PolicyArtefact.load(path, robot=SPEC)


@pytest.fixture(scope="module")
def run(artefact):
    return record_run(artefact, SPEC, seconds=14.0, count=2, noise_m=0.001)


def test_robots_in_each_others_way_end_at_their_waypoints(run):
    model = motion_model(SPEC)
    for robot in run.fleet.robots:
        track = run.truth[robot.name]
        last = MotionState(track.position_world[-1], track.yaw[-1], track.velocity[-1])
        np.testing.assert_allclose(model.stopping_point(last).position_world, robot.goal_world, atol=0.02)
    places = [run.truth[name].position_world for name in ("r0", "r1")]
    assert np.linalg.norm(places[0] - places[1], axis=1).min() > 2 * SPEC.body_radius_m


def test_the_run_infers_again_and_a_changed_waypoint_does_not(run, artefact):
    result = reinfer(run, artefact)
    assert result.passed
    assert result.error <= TOLERANCE
    ticks = run.ticks["r0"]
    held = next(k for k, tick in enumerate(ticks) if tick.waypoint_world and not tick.decided)
    moved = (ticks[held].waypoint_world[0] + 1e-3, *ticks[held].waypoint_world[1:])
    for waypoint in (moved, ()):
        changed = (*ticks[:held], dataclasses.replace(ticks[held], waypoint_world=waypoint))
        assert not reinfer(dataclasses.replace(run, ticks={"r0": changed}), artefact).passed
