"""The scene of a page: poses of robots, boxes and predicted robots on the grid of times, walls and obstacles."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from testudo_analysis.gap.presentation.replayed_course import ReplayedCourse
from testudo_analysis.rendering.animation import Animation, interpolate_quaternions
from testudo_analysis.rendering.scene_model import robot_colour
from testudo_analysis.rendering.task_entities import TaskEntities
from testudo_analysis.run_page.page_data import PageBody, PageClock, PageScene
from testudo_deploy.shield.arena import Arena
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box, box_of
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.run_reader import RecordedRun

_MOST, _SHORTEST_S = 8_000, 0.05  # most times on the grid, and its shortest step
_UNSEEN_S = 0.5  # a robot is not drawn between two poses further apart
_ROOM_M = 0.3
_CARTON = "#b08d57"
_AWAY_M = 50.0  # entities that are not there are further away than this


def page_clock(begin_s: float, end_s: float) -> PageClock:
    """Return the grid of times from one time to another [s]."""
    span = max(end_s - begin_s, 1e-3)
    step = max(_SHORTEST_S, round(span / _MOST, 3))
    return PageClock(float(begin_s), step, int(span / step) + 1)


def recorded_clock(recording: TeamRecording) -> PageClock:
    """Return the grid of times of a recording: from the first to the last pose of any robot."""
    stamps = [robot.trajectory.stamp_s for robot in recording.robots]
    return page_clock(min(own[0] for own in stamps), max(own[-1] for own in stamps))


def recorded_scene(
    recording: TeamRecording, clock: PageClock, courses: Mapping[str, ReplayedCourse] | None = None
) -> PageScene:
    """Return the scene of a recording; ``courses`` are replayed robots by name, drawn beside the real ones."""
    times, run = clock.times_s, recording.run
    bodies = []
    for index, robot in enumerate(recording.robots):
        course = (courses or {}).get(robot.name)
        bodies.append(
            _body(
                robot.name,
                robot.spec,
                index,
                _poses(robot, times, _quaternions(robot, recording, times)),
                error_m=pose_error_m(recording, robot),
                model=None if course is None else _course_poses(course, times),
                goal=robot.goal_world,
            )
        )
    if run is not None:
        bodies += _recorded_boxes(recording, run, times)
    return _scene(bodies, recording.arena)


def animation_scene(animation: Animation) -> tuple[PageClock, PageScene]:
    """Return the grid of times and the scene of an animation."""
    scenery = animation.scenery
    begin, end = float(animation.trajectory.time_s[0]), float(animation.trajectory.time_s[-1])
    clock = page_clock(begin, end)
    track = animation.trajectory.resampled(clock.step_s)
    count = min(clock.count, len(track.time_s))
    clock = PageClock(begin, clock.step_s, count)
    bodies = []
    for index, spec in enumerate(scenery.specs):
        turns = None if track.quaternion_xyzw is None else track.quaternion_xyzw[:count, index]
        poses = _stacked(track.position_world[:count, index], track.yaw[:count, index], turns)
        goal = None if scenery.goals_world is None else tuple(scenery.goals_world[index])
        bodies.append(_body(f"r{index}", spec, index, poses, error_m=0.0, goal=goal))
    if track.boxes_world is not None and track.boxes_yaw is not None:
        for index, box in enumerate(scenery.boxes):
            bodies.append(_box(box, _stacked(track.boxes_world[:count, index], track.boxes_yaw[:count, index])))
    return clock, _scene(bodies, scenery.arena)


def pose_error_m(recording: TeamRecording, robot: AlignedRobot) -> float:
    """Return the bound of the error of a robot's recorded positions [m]; 0 for true poses of a plant."""
    run = recording.run
    is_true = run is not None and len(run.truth[robot.name].stamp_s) > 0
    return 0.0 if is_true else robot.spec.position_error_m


def _body(
    name: str,
    spec: RobotSpec,
    index: int,
    poses: np.ndarray,
    *,
    error_m: float,
    model: np.ndarray | None = None,
    goal: Sequence[float] | None = None,
) -> PageBody:
    kind = "drone" if spec.dimension == 3 else "ground"
    place = None if goal is None else (*(float(value) for value in goal), 0.0)[:3]
    size = (spec.body_radius_m, spec.body_height_m)
    return PageBody(name, kind, robot_colour(index), size, error_m, poses, model, place)


def _box(box: Box, poses: np.ndarray) -> PageBody:
    away = np.abs(poses[:, :2]).max(axis=1) > _AWAY_M
    poses[away] = np.nan
    return PageBody(box.name, "box", _CARTON, tuple(float(side) for side in box.size_m), 0.0, poses)


def _recorded_boxes(recording: TeamRecording, run: RecordedRun, times: np.ndarray) -> list[PageBody]:
    """Return the measured bodies, and the entities of the task where the task node said them."""
    found, steady = [], times + recording.start_s
    for body in run.fleet.bodies:
        track = run.bodies[body.name]
        if len(track.stamp_s) > 1:
            found.append(_box(box_of(body), _stacked(*track.at(steady))))
    if recording.contract is not None:
        names = [body.name for body in run.fleet.bodies]
        entities = TaskEntities.of(recording.contract.signals, names, recording.spec.body_radius_m)
        places = entities.recorded_world(run, steady)
        if places is not None:
            still = np.zeros(len(times))
            found += [_box(box, _stacked(places[:, k], still)) for k, box in enumerate(entities.boxes)]
    return found


def _poses(robot: AlignedRobot, times: np.ndarray, quaternions: np.ndarray | None) -> np.ndarray:
    track = robot.trajectory
    position, yaw, _ = track.at(times)
    poses = _stacked(position, yaw, quaternions)
    after = np.clip(np.searchsorted(track.stamp_s, times), 1, len(track) - 1)
    apart = track.stamp_s[after] - track.stamp_s[after - 1]
    inside = (times >= track.stamp_s[0] - 1e-9) & (times <= track.stamp_s[-1] + 1e-9)
    poses[~(inside & (apart <= _UNSEEN_S))] = np.nan
    return poses


def _quaternions(robot: AlignedRobot, recording: TeamRecording, times: np.ndarray) -> np.ndarray | None:
    """Return the recorded attitudes (K, 4) of a drone; None for ground robots and where none are recorded."""
    if robot.spec.dimension < 3:
        return None
    if recording.run is not None:
        truth = recording.run.truth[robot.name].in_order()
        if truth.quaternion_xyzw is None or len(truth.stamp_s) < 2:
            return None
        return interpolate_quaternions(times + recording.start_s, truth.stamp_s, truth.quaternion_xyzw)
    series = None if robot.raw is None else robot.raw.series.get(robot.report.reference)
    if series is None or len(series) < 2:
        return None
    stamps, index = np.unique(series.stamp_s, return_index=True)
    turns = series.values[index][:, 3:7]
    good = np.isfinite(turns).all(axis=1) & (np.abs(np.linalg.norm(turns, axis=1) - 1) < 0.1)
    return interpolate_quaternions(times, stamps[good], turns[good]) if good.sum() > 1 else None


def _course_poses(course: ReplayedCourse, times: np.ndarray) -> np.ndarray:
    """Return predicted poses (K, 7) at other times; a restart is a step, not a line."""
    place = np.clip((times - course.time_s[0]) / (course.time_s[1] - course.time_s[0]), 0, len(course.time_s) - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, len(course.time_s) - 1)
    high = np.where(course.restart[high], low, high)
    share = (place - low)[:, None]
    poses = (1 - share) * course.replayed[low] + share * course.replayed[high]
    return _stacked(poses[:, :-1], poses[:, -1])


def _stacked(position: np.ndarray, yaw: np.ndarray, quaternions: np.ndarray | None = None) -> np.ndarray:
    """Return poses (K, 7) of positions (K, 2 or 3), yaws (K,) and attitudes (K, 4); None for upright ones."""
    place = np.zeros((len(position), 3))
    place[:, : position.shape[1]] = position
    if quaternions is None:
        zero = np.zeros(len(yaw))
        quaternions = np.column_stack([zero, zero, np.sin(yaw / 2), np.cos(yaw / 2)])
    return np.column_stack([place, quaternions])


def _scene(bodies: Sequence[PageBody], arena: Arena | None) -> PageScene:
    robots = [body for body in bodies if body.kind != "box"]
    places = np.concatenate([body.poses[:, :3] for body in bodies])
    goals = [body.goal_world for body in robots if body.goal_world is not None]
    if goals:
        places = np.concatenate([places, np.array(goals)])
    places = places[np.isfinite(places).all(axis=1)]
    room = _ROOM_M + max(body.size_m[0] for body in robots)
    low, high = places.min(axis=0) - room, places.max(axis=0) + room
    focus = low.copy(), high.copy()
    if arena is not None:
        sides = len(arena.low_world)
        low[:sides], high[:sides] = arena.low_world, arena.high_world
    low[2] = min(0.0, float(places[:, 2].min()))
    flies = any(body.kind == "drone" for body in robots)
    if not flies:
        high[2] = focus[0][2] = focus[1][2] = 0.0
    obstacles = () if arena is None else tuple(asdict(obstacle) for obstacle in arena.obstacles)
    near = tuple(tuple(np.clip(corner, low, high).tolist()) for corner in focus)
    bounds = tuple(low.tolist()), tuple(high.tolist()), (near[0], near[1])
    return PageScene(tuple(bodies), *bounds, arena is not None, obstacles, flies)
