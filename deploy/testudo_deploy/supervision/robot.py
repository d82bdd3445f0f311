"""One deployed robot: control loop, supervisor and pacer together, behind the ROS node; pure.

Times are seconds on one clock that the caller injects.
"""

import math
import time
from dataclasses import dataclass

from testudo_deploy.admission.fleet_admission import checked_safety_contracts, climb_volume_of, load_policy
from testudo_deploy.compiling.shared_library import NotCompiledError, is_asked_for
from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.body_contact import BodyContact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.control_tick import FOLLOWS_COMMANDS, FlightPhase, TickPacer
from testudo_deploy.control.goal_hold import GOAL_TOLERANCE_M, HOLD_SENTENCES
from testudo_deploy.control.scan_receiver import ScanReceiver
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.fleet.crazyswarm2_import import check_driver
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.localiser import offset_from_start, switched_on_at
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder
from testudo_deploy.guard.speed_cap import cap_sentence, speed_cap_m_s
from testudo_deploy.monitoring.diagnostics import Level, Status, diagnostic_text
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.caution import Caution
from testudo_deploy.shield.flight_column import ClimbLimits
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.supervision.flight_phases import BatteryLimits, FlightIntent, FlightSupervisor
from testudo_deploy.supervision.modes import RESTING, Event, Mode, VehicleKind, code_of
from testudo_deploy.supervision.supervisor import GuardReport, RequestReply, Supervisor
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.flight_link import VehicleState

_LEVELS = {
    Mode.HOLDING: Level.WARN,
    Mode.LAND: Level.WARN,
    Mode.STOPPED: Level.ERROR,
    Mode.FAULT: Level.ERROR,
    Mode.EMERGENCY: Level.ERROR,
}
"""Levels of modes other than normal operation."""
_INTERVENTIONS = ("projected", "gated", "waiting", "braked")
"""Statuses of the shield in which it changed the nominal command."""
_SUSPENDED_S = 0.1  # after a later tick the process was suspended; messages of that time have not been received yet


@dataclass(frozen=True)
class TickOutput:
    """What to send after a tick."""

    record: TickRecord
    announcement: PeerMessage | None  # for the peers; None while the own pose is not known
    commands: bool  # the record's command must be sent; a robot at rest sends none, and its guard brakes if necessary
    changed: bool  # the mode or its reason changed since the tick before


class Robot:
    """One robot, its policy loaded and checked against the fleet."""

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        policy: str,
        *,
        epoch: str,
        now_s: float,
        simulated_time: bool = False,
        on_hardware: bool = False,
    ) -> None:
        """Load and check everything.

        ``epoch`` names this process. In ``simulated_time`` recorded durations are zero, so that runs are
        byte-identical. ``on_hardware``: no plant moves the robot, so that a file of estimates caps its speed.

        Raises:
            TestudoError: the policy, the robot or the fleet is refused.
        """
        robot, team = fleet.robot(name), fleet.team_of(name)
        artefact = load_policy(team, robot.spec, policy)
        check_driver(robot, fleet.file.parent)
        checked_safety_contracts(fleet, {team.policy_sha256: artefact})
        peers = team.peers(name)
        self.name, self.spec = name, robot.spec
        self.loop = ControlLoop(
            artefact,
            robot.spec,
            robot=name,
            peers=peers,
            goal_world=robot.goal_world,
            epoch=epoch,
            untrusted={one.name: one.untrusted_speed_m_s for one in map(fleet.robot, peers) if one.untrusted},
            pose_max_age_s=robot.pose.max_age_s,
            stopwatch=(lambda: 0.0) if simulated_time else time.perf_counter,
        )
        self.uncalibrated = self._cap_speed(artefact.contract.scenario, on_hardware=on_hardware)
        """Why its speed is capped; empty if it is not."""
        sensed, contract = robot.link.profile.signals, artefact.contract
        signals = [one for one in contract.task_signals if fleet.task is not None or one.name in sensed]
        if signals:
            task = TaskReceiver(signals, contract.task_hash, robot=name, epoch=epoch, peers=peers, sensed=sensed)
            self.loop.task = task
        self.loop.hold.within_m = _hold_within_m(fleet, robot, artefact)
        self.loop.scans = _scans_of(robot, contract.arena)
        if fleet.bodies:
            self.loop.motion.touches = BodyContact(fleet.bodies, robot.spec, lambda: self.loop.task.reading)
        kind = VehicleKind.FLIGHT if robot.has_flight_phases else VehicleKind.GROUND
        self.supervisor = Supervisor(now_s=now_s, kind=kind)
        self.flight = _flight_of(robot, artefact) if robot.has_flight_phases else None
        """Of a robot with flight phases."""
        self.pacer = TickPacer(robot.spec.control_period_s)
        self.refused_messages = 0
        """Messages that could not be read."""
        self.interventions = 0
        """Ticks in which the robot was active and the shield changed its command."""
        self._start = switched_on_at(robot)
        """Place required for the first arming; None: any place."""
        self._follows, self._shown = robot.follows, ("", "", "")
        self._last: TickRecord | None = None

    def use_compiled_bodies(self) -> str:
        """Compute the arrays of a tick as machine code where that is asked for; return why not, empty if it does.

        It is asked for by the environment variable `SWITCH` = 1, until it is proven equal to NumPy (docs/shield.md).
        """
        if not is_asked_for():
            return ""
        try:
            self.loop.use_compiled_bodies()
        except NotCompiledError as error:
            return f"{self.name}: shield and prediction stay in NumPy, a tick takes about three times as long: {error}"
        return ""

    def _cap_speed(self, scenario: str, *, on_hardware: bool) -> str:
        """Cap the speed of a robot whose file holds estimates, and return why; empty if it is not capped."""
        cap_m_s = speed_cap_m_s(self.spec, scenario, on_hardware=on_hardware)
        if math.isfinite(cap_m_s):
            self.loop.motion.assumptions.standing = Caution(cap_m_s, 0.0)
        return cap_sentence(self.spec, cap_m_s)

    def request(self, event: Event, now_s: float) -> RequestReply:
        """Answer an operator; see `Supervisor.request`."""
        answer = self.supervisor.request(event, now_s)
        if answer.granted and event is Event.DEACTIVATE and self.supervisor.mode in RESTING:
            self.loop.release_space()
        if answer.granted and event is Event.ARM:
            self._start = None
            if self.flight is not None:
                self.flight.begin(now_s)
        return answer

    def hear_guard(self, report: GuardReport) -> None:
        """Take the guard's report."""
        self.supervisor.hear_guard(report)
        self.loop.on_guard(passes=not report.code and not report.slows, received_s=report.received_s)

    def hear_leader(self, message: PeerMessage) -> None:
        """Set the goal from the announced place of the robot that this one follows."""
        if self._follows is not None and message.robot == self._follows.robot:
            self.loop.aim(self._follows.goal_world(message.position_world, self.spec.dimension))

    def hear_vehicle(self, state: VehicleState, received_s: float) -> None:
        """Take a report of the vehicle; for a robot with flight phases."""
        if self.flight is not None:
            self.flight.hear_vehicle(state, received_s)
        self.loop.on_vehicle(passes=not state.holds)

    def flight_order(self, now_s: float) -> FlightOrder:
        """Return the order for the guard; for a robot with flight phases."""
        if self.flight is None:
            raise ValueError(f"{self.name}: has no flight phases, so that there is no order for its guard")
        intent = self._flight_intent(self.flight, now_s)
        return FlightOrder(
            self.name, now_s, str(intent.wanted), intent.top_m, intent.climb_s, intent.ground_m, intent.down_s
        )

    def tick(self, now_s: float, *, on_pose: bool = True) -> TickOutput:
        """Run one control tick, on the arrival of a pose or without one."""
        late_s = self.pacer.begin(now_s, on_pose=on_pose)
        supervisor = self.supervisor
        if late_s > _SUSPENDED_S:
            supervisor.resume(now_s)
        if supervisor.mode in RESTING:
            self.loop.release_space()
        driving, order = supervisor.mode is Mode.ACTIVE, supervisor.order
        record = self.loop.tick(now_s, late_s, order, self._flight_phase(now_s))
        finding = "" if record.reason == order else record.reason
        supervisor.observe(now_s, finding or self._away(record), *self._check_flight(record, now_s))
        self.interventions += driving and record.status in _INTERVENTIONS
        self._last = record
        shown_now = (supervisor.mode, code_of(supervisor.reason), self.holds)
        changed, self._shown = shown_now != self._shown, shown_now
        return TickOutput(record, self.loop.announcement(now_s), supervisor.mode not in RESTING, changed)

    @property
    def holds(self) -> str:
        """Return why an active robot stands, see `goal_hold`; empty if it drives, or may not."""
        return self._last.holds if self._last is not None and self.supervisor.mode is Mode.ACTIVE else ""

    def _flight_intent(self, flight: FlightSupervisor, now_s: float) -> FlightIntent:
        return flight.intent(self.supervisor.mode, self.supervisor.since_s, now_s)

    def _flight_phase(self, now_s: float) -> FlightPhase:
        """Return the part of the flight for the control loop."""
        if self.flight is None:
            return FOLLOWS_COMMANDS
        intent, mode = self._flight_intent(self.flight, now_s), self.supervisor.mode
        return FlightPhase(
            flown_by_itself=intent.wanted is not DesiredFlightState.FLY,
            climbs=mode is Mode.TAKE_OFF,
            take_off_to_m=intent.top_m if mode is Mode.DISARMED else None,
            lands_to_m=intent.ground_m if intent.wanted is DesiredFlightState.LAND else None,
            velocity_world=intent.velocity_world,
        )

    def _check_flight(self, record: TickRecord, now_s: float) -> tuple[str, ...]:
        """Take the newest pose and return the reasons against the flight; may end a take-off or a landing."""
        flight, supervisor = self.flight, self.supervisor
        if flight is None:
            return ()
        newest, place = self.loop.pose, None
        if newest is not None:
            flight.hear_pose(newest.position_world, newest.velocity[2], newest.stamp_s, valid=self.loop.located)
            place = record.measured_position_world if self.loop.located else None
        found = flight.reasons(supervisor.mode, supervisor.since_s, now_s, place, supervisor.guard_flight)
        drift = self.loop.drift_fault if supervisor.mode in (Mode.HOLD, Mode.HOLDING) else ""
        if drift:
            found += (f"drifted: {drift}",)
        event = flight.arrival(supervisor.mode, now_s)
        if event is not None:
            supervisor.arrive(event, now_s)
        return found

    def _battery_text(self) -> str:
        volts = None if self.flight is None else self.flight.battery_v
        return "" if volts is None else f"{volts:.2f} V"

    def _away(self, record: TickRecord) -> str:
        place, yaw = record.measured_position_world, record.measured_yaw
        if self._start is None or self.supervisor.mode not in RESTING or place is None or yaw is None:
            return ""
        return offset_from_start(self._start, PlanarTransform(place, yaw))

    def summary(self) -> dict[str, str | int | float]:
        """Return the counts for the end of the fleet run."""
        pacer, loop = self.pacer, self.loop
        return {
            "robot": self.name,
            "ticks": pacer.ticks,
            "late_ticks": pacer.late_ticks,
            "missed_ticks": pacer.missed_ticks,
            "worst_late_s": pacer.worst_late_s,
            "refused_messages": self.refused_messages + loop.task.refused,
            "refused_poses": loop.refused_poses,
            "refused_peer_messages": loop.refused_peer_messages,
        }

    def status(self, now_s: float) -> Status:
        """Return the status for operators."""
        supervisor, record, pacer = self.supervisor, self._last, self.pacer
        pose_s = None if record is None else record.pose_stamp_s
        ages = record.neighbour_age_s if record is not None else ()
        warning = "; ".join(filter(None, (self.loop.warning, self.uncalibrated)))
        level = _LEVELS.get(supervisor.mode, Level.OK)
        sentence = f"{self.holds}: {HOLD_SENTENCES[self.holds]}" if self.holds else supervisor.sentence
        return Status(
            max(level, Level.WARN if warning else Level.OK),
            f"{self.name}: policy",
            self.name,
            f"{sentence}; {warning}" if warning else sentence,
            {
                "mode": str(supervisor.mode),
                "code": code_of(supervisor.reason),
                "reason": supervisor.reason,
                "holds": self.holds,
                "warning": warning,
                "since_s": diagnostic_text(now_s - supervisor.since_s),
                "was_active": str(supervisor.was_active).lower(),
                "flew": str(supervisor.flew).lower(),
                "by_hand": str(supervisor.by_hand).lower(),
                "battery": self._battery_text(),
                "lost": " ".join(sorted(self.loop.lost)),
                "shield": "" if record is None else record.status,
                "pose_age_s": diagnostic_text(None if pose_s is None else now_s - pose_s),
                "peer_age_s": diagnostic_text(max(ages, default=None)),
                "ticks": diagnostic_text(pacer.ticks),
                "late_ticks": diagnostic_text(pacer.late_ticks + pacer.missed_ticks),
                "worst_late_s": diagnostic_text(pacer.worst_late_s),
                "interventions": diagnostic_text(self.interventions),
                "refused_poses": diagnostic_text(self.loop.refused_poses),
                "refused_messages": diagnostic_text(
                    self.refused_messages + self.loop.refused_peer_messages + self.loop.task.refused
                ),
            },
        )


def _hold_within_m(fleet: Fleet, robot: FleetRobot, artefact: PolicyArtefact) -> float:
    """Return how near to the goal of the fleet file the robot arrives and stands [m]; 0 without one that stays.

    A task node says it with the goal. A drone is kept at its place by its policy: without a velocity it drifts.
    """
    has_goal = any(signal.name == "goal_world" for signal in artefact.contract.signals)
    stays = fleet.task is None and robot.follows is None and robot.link.commands is None and robot.spec.dimension == 2
    return GOAL_TOLERANCE_M if has_goal and stays else 0.0


def _scans_of(robot: FleetRobot, arena: Arena | None) -> ScanReceiver | None:
    """Return what takes a robot's scans into its shield; None where the fleet file does not say so."""
    if robot.scan is None or not robot.scan.rows:
        return None
    return ScanReceiver(robot.spec, robot.scan.scanner, arena, stop_tube_parameters(robot.spec))


def _flight_of(robot: FleetRobot, artefact: PolicyArtefact) -> FlightSupervisor:
    part = robot.link.profile.flight
    controller, estimator = (None, None) if part is None else (part.controller, part.estimator)
    room = climb_volume_of(robot, artefact.contract)
    return FlightSupervisor(
        robot.initial_position_world,
        BatteryLimits.of(robot.spec),
        controller="" if controller is None else controller.value,
        estimator="" if estimator is None else estimator.value,
        latency_s=robot.spec.link_delay_most_s,
        room=room,
        climb=ClimbLimits.of(robot.spec, room),
    )
