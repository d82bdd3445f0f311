"""Re-inference: the recorded inputs of every tick through the artefact and the shield again.

On an honest record the recorded commands come out again. The inputs themselves are traced to where
they came from (see `sources`), so that a changed one is found also where it changes no command.
"""

from __future__ import annotations

from collections.abc import Mapping

from testudo_analysis.replay.input_sources import Announcements, check_goals, check_neighbours, check_poses
from testudo_analysis.replay.reinference_checks import TOLERANCE, Reinference, RobotCheck
from testudo_analysis.replay.tick_replay import TickReplay
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, motion_model
from testudo_hardware.spec import parse_robot
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.run_reader import RecordedRun, ticks_in_order


def reinfer(
    run: RecordedRun, artefact: PolicyArtefact, *, tolerance: float = TOLERANCE, share: Share = quiet
) -> Reinference:
    """Compute every recorded command again and compare.

    Args:
        run: the recording.
        artefact: the policy that drove it; its contract holds robot and shield.
        tolerance: largest deviation that passes.
        share: is told the share that is done.

    Raises:
        TestudoError: there is no tick at all.
    """
    if not any(run.ticks.values()):
        raise TestudoError(f"{run.folder}: holds no tick record; re-inference needs what the control loops wrote")
    model, announced = model_of(artefact), announcements_of(run)
    checks = []
    for name in run.ticks:
        share(len(checks) / len(run.ticks))
        checks.append(reinfer_robot(run, name, artefact, model, announced))
    return Reinference(tolerance, artefact.sha256, tuple(checks))


def reinfer_robot(
    run: RecordedRun,
    name: str,
    artefact: PolicyArtefact,
    model: MotionModel,
    announced: Mapping[str, Announcements],
) -> RobotCheck:
    """Compare the commands of one robot; see `reinfer`."""
    rerun, ticks = TickReplay(artefact, model), ticks_in_order(run.ticks[name])
    for record in ticks:
        rerun.take(record)
    robot = run.fleet.robot(name)
    leader = () if robot.follows is None else run.announcements.get(robot.follows.robot, ())
    unverified = check_goals(rerun.errors, ticks, robot.goal_world, leader, robot.follows)
    unverified += check_neighbours(rerun.errors, name, ticks, announced)
    unverified += check_poses(rerun.errors, ticks, run.odometry[name])
    return RobotCheck(
        name,
        len(ticks),
        rerun.lost,
        rerun.decisions,
        rerun.reinferred,
        dict(sorted(rerun.skipped.items())),
        unverified,
        rerun.errors.checks(),
    )


def model_of(artefact: PolicyArtefact) -> MotionModel:
    """Return the motion model of the robot that the policy is for."""
    return motion_model(parse_robot(artefact.contract.robot_spec, f"{artefact.path}: contract"))


def announcements_of(run: RecordedRun) -> dict[str, Announcements]:
    """Return what each robot told its peers."""
    return {name: Announcements.of(messages) for name, messages in run.announcements.items()}
