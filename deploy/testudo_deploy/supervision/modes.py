"""The modes of a robot, their transitions, and every reason to brake: one table each; pure.

An unknown request is refused, and an unknown reason is treated as a fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class VehicleKind(StrEnum):
    """The table of transitions that applies to a robot."""

    GROUND = "ground"
    FLIGHT = "flight"  # it starts on the ground, takes off, hovers and lands; in the air it stops by hovering


class Mode(StrEnum):
    """The mode of a robot; the policy drives it in ``active`` only."""

    IDLE = "idle"  # inactive: it listens and announces its place; people may carry it
    ARMED = "armed"  # all checks passed; it stands, reserves its place, and may be started
    ACTIVE = "active"
    HOLDING = "holding"  # brakes for a reason that may end by itself; in the air it hovers
    STOPPED = "stopped"  # an operator stopped it; only an operator starts it again
    FAULT = "fault"  # something is broken; only deactivating leaves this mode

    DISARMED = "disarmed"  # on the ground with its motors off; people may carry it
    TAKE_OFF = "take_off"  # its vehicle climbs straight up to the start height by itself, in reserved space
    HOLD = "hold"  # hovers, and may be started
    LAND = "land"  # descends through the shield; the vehicle flies the last part by itself
    EMERGENCY = "emergency"  # brakes and hovers, then lands; ends on the ground


class Event(StrEnum):
    """An event that can change the mode."""

    ARM = "arm"  # a robot that flies also takes off
    START = "start"
    STOP = "stop"
    DEACTIVATE = "deactivate"
    LAND = "land"  # an operator's request, or a watchdog whose reaction is to land
    BRAKE_REASON = "doubt"  # a watchdog whose reaction is to hold
    HEALTHY = "healthy"  # nothing was wrong for `HEALTHY_S`
    ESTOP = "estop"
    REARM = "rearm"  # an operator reset the emergency stop
    BREAK = "break"  # a watchdog whose reaction is fault
    GUARD_LOST = "lose_guard"
    REACH = "reach"  # the vehicle has climbed to the start height
    TOUCH = "touch"  # the vehicle stands on the ground with its motors off


_RUNNING = (Mode.ARMED, Mode.ACTIVE, Mode.HOLDING)
_UP = (Mode.TAKE_OFF, Mode.HOLD, Mode.ACTIVE, Mode.HOLDING)
_GROUND: dict[tuple[Mode, Event], Mode] = {
    (Mode.IDLE, Event.ARM): Mode.ARMED,
    (Mode.ARMED, Event.START): Mode.ACTIVE,
    (Mode.ACTIVE, Event.BRAKE_REASON): Mode.HOLDING,
    (Mode.HOLDING, Event.HEALTHY): Mode.ACTIVE,
    (Mode.ACTIVE, Event.STOP): Mode.ARMED,
    (Mode.HOLDING, Event.STOP): Mode.ARMED,
    (Mode.STOPPED, Event.REARM): Mode.ARMED,
    **{(mode, Event.ESTOP): Mode.STOPPED for mode in _RUNNING},
    **{(mode, Event.BREAK): Mode.FAULT for mode in (*_RUNNING, Mode.STOPPED)},
    **{(mode, Event.GUARD_LOST): Mode.IDLE for mode in (*_RUNNING, Mode.STOPPED)},
    **{(mode, Event.DEACTIVATE): Mode.IDLE for mode in (*_RUNNING, Mode.IDLE, Mode.STOPPED, Mode.FAULT)},
}
_FLIGHT: dict[tuple[Mode, Event], Mode] = {
    (Mode.DISARMED, Event.ARM): Mode.TAKE_OFF,
    (Mode.TAKE_OFF, Event.REACH): Mode.HOLD,
    (Mode.HOLD, Event.START): Mode.ACTIVE,
    (Mode.ACTIVE, Event.BRAKE_REASON): Mode.HOLDING,
    (Mode.HOLDING, Event.HEALTHY): Mode.ACTIVE,
    (Mode.ACTIVE, Event.STOP): Mode.HOLD,
    (Mode.HOLDING, Event.STOP): Mode.HOLD,
    **{(mode, Event.LAND): Mode.LAND for mode in _UP},
    # a robot in the air is not deactivated: it lands first
    **{(mode, Event.DEACTIVATE): Mode.LAND for mode in (*_UP, Mode.LAND)},
    (Mode.EMERGENCY, Event.DEACTIVATE): Mode.EMERGENCY,
    (Mode.DISARMED, Event.DEACTIVATE): Mode.DISARMED,
    **{
        (mode, event): Mode.EMERGENCY
        for mode in (*_UP, Mode.LAND)
        for event in (Event.ESTOP, Event.BREAK, Event.GUARD_LOST)
    },
    # TOUCH in any mode: the vehicle reports that it stands with its motors off
    **{(mode, Event.TOUCH): Mode.DISARMED for mode in (*_UP, Mode.LAND, Mode.EMERGENCY)},
}
TRANSITIONS: Mapping[VehicleKind, Mapping[tuple[Mode, Event], Mode]] = {
    VehicleKind.GROUND: _GROUND,
    VehicleKind.FLIGHT: _FLIGHT,
}
"""Every change of mode, for robots on the ground and for those that fly; there are no others."""
BEGINNING: Mapping[VehicleKind, Mode] = {VehicleKind.GROUND: Mode.IDLE, VehicleKind.FLIGHT: Mode.DISARMED}
RESTING = (Mode.IDLE, Mode.DISARMED)  # modes in which nothing is sent to the actuators and people may carry the robot
READY = (Mode.ARMED, Mode.HOLD)  # modes from which a robot can be started


class Reaction(StrEnum):
    """What a watchdog does, from the mildest to the most severe."""

    REFUSE = "refuse"  # prevents arming and starting; a robot that drives continues
    BRAKE = "brake"  # in this tick only
    HOLD = "hold"  # until nothing was wrong for `HEALTHY_S`
    LAND = "land"  # a robot in the air descends; one on the ground stays there
    STOP = "stop"  # until an operator re-arms
    DEACTIVATE = "deactivate"  # the node becomes inactive; arming it again repeats all checks
    FAULT = "fault"  # until the node is deactivated by hand


@dataclass(frozen=True)
class Watchdog:
    """One reason to brake."""

    code: str  # stable; diagnostics, records and tests name it
    reaction: Reaction
    sentence: str  # for operators: what is wrong and what to check


_WATCHDOGS = (
    Watchdog("no_pose", Reaction.HOLD, "no pose has been heard; is the odometry topic published and its type right?"),
    Watchdog("stale_pose", Reaction.HOLD, "the last pose is older than the robot's pose_max_age"),
    Watchdog("pose_jump", Reaction.HOLD, "the pose jumped; a new place counts once it is steady for 1 s"),
    Watchdog("pose_restless", Reaction.FAULT, "the pose jumped 3 times in 10 s; repair localisation, then deactivate"),
    Watchdog("away_from_start", Reaction.REFUSE, "put it on its initial pose and set its odometry to zero there"),
    Watchdog("clock_backwards", Reaction.HOLD, "the clock or a stamp went backwards"),
    Watchdog("peer_unheard", Reaction.HOLD, "a robot of the fleet has never been heard"),
    Watchdog("untrusted_unseen", Reaction.HOLD, "the tracking system has never measured an untrusted robot"),
    Watchdog("too_close", Reaction.HOLD, "it stands too close to another robot; move one of them"),
    Watchdog("peer_in_space", Reaction.HOLD, "another robot appeared where this one may drive; move one of them"),
    Watchdog("peer_unaware", Reaction.HOLD, "another robot has not acknowledged the place where this one stands now"),
    Watchdog("task_stale", Reaction.HOLD, "the signals of the task are missing or too old; is the task node running?"),
    Watchdog("scan_silent", Reaction.HOLD, "the shield has no recent scan of all around; is the scanner's driver up?"),
    Watchdog(
        "task_contract",
        Reaction.HOLD,
        "the task node runs the task of another policy; give all computers one fleet file",
    ),
    Watchdog("policy_error", Reaction.HOLD, "the policy raised an error or gave no finite command"),
    Watchdog("shield_braked", Reaction.BRAKE, "the shield found no safe command"),
    Watchdog("internal_error", Reaction.HOLD, "the control loop raised an error"),
    Watchdog("brakes_weak", Reaction.FAULT, "the robot brakes worse than its file says"),
    Watchdog("no_response", Reaction.FAULT, "the robot does not move as commanded: wheel blocked, actuator saturated"),
    Watchdog(
        "stranger",
        Reaction.REFUSE,
        "a robot outside of the fleet file publishes here, and no robot keeps clear of it; "
        "give all computers one fleet file, and each fleet its own ROS_DOMAIN_ID",
    ),
    Watchdog(
        "policy_differs",
        Reaction.REFUSE,
        "not all processes of the fleet use one policy file; give them one with `testudo policy`",
    ),
    Watchdog(
        "qos_mismatch", Reaction.REFUSE, "a partner's quality of service does not match; correct it, configure again"
    ),
    Watchdog("guard_brakes", Reaction.HOLD, "the guard does not pass commands on"),
    Watchdog("guard_late", Reaction.HOLD, "the guard has not reported for 0.35 s"),
    Watchdog("guard_silent", Reaction.DEACTIVATE, "the guard process is gone"),
    Watchdog("estop", Reaction.STOP, "emergency stop; release it and call the guard's rearm service"),
    Watchdog("station_lost", Reaction.STOP, "the guard has lost the station's heartbeat; once it is back, rearm"),
    # of robots that fly
    Watchdog("vehicle_unheard", Reaction.REFUSE, "the vehicle does not report its state; is its driver or radio up?"),
    Watchdog("vehicle_silent", Reaction.LAND, "the vehicle has not reported its state for 2 s; its radio may fail"),
    Watchdog("vehicle_holds", Reaction.HOLD, "its driver keeps it at standstill; /diagnostics has the reason"),
    Watchdog("vehicle_not_ready", Reaction.REFUSE, "the vehicle reports that it cannot fly; inspect it and reset it"),
    Watchdog("vehicle_tumbled", Reaction.FAULT, "the vehicle has tumbled or locked itself; pick it up and reset it"),
    Watchdog("wrong_controller", Reaction.REFUSE, "velocity set-points need stabilizer.controller 1 (PID)"),
    Watchdog("wrong_estimator", Reaction.REFUSE, "poses from outside need stabilizer.estimator 2 (Kalman)"),
    Watchdog("radio_slow", Reaction.REFUSE, "its radio is slower than the robot file says; check channel and distance"),
    Watchdog("radio_late", Reaction.HOLD, "its radio has become slower than the robot file says"),
    Watchdog("in_the_air", Reaction.REFUSE, "it is not on the ground; its guard holds it and lands it"),
    Watchdog("not_at_start", Reaction.REFUSE, "put it on the ground below its initial position"),
    Watchdog(
        "outside_arena",
        Reaction.REFUSE,
        "the climb to its start height leaves the arena of the policy, or meets an obstacle",
    ),
    Watchdog("not_level", Reaction.REFUSE, "put it on level ground"),
    Watchdog("column_taken", Reaction.REFUSE, "another robot is in the take-off column, or requests it"),
    Watchdog("battery_not_full", Reaction.REFUSE, "charge its battery, or put in a full one"),
    Watchdog("battery_low", Reaction.LAND, "its battery is low; it lands before it falls"),
    Watchdog("pose_lost", Reaction.LAND, "without a pose it cannot hold its place; its vehicle lands it"),
    Watchdog("no_take_off", Reaction.LAND, "it did not reach its start height in time"),
    Watchdog(
        "climb_astray", Reaction.LAND, "it leaves its take-off column sideways or upwards, or its place is not known"
    ),
    Watchdog("column_entered", Reaction.LAND, "another robot came into the column in which this one climbs"),
    Watchdog("drifted", Reaction.LAND, "it hovers, and has drifted farther than others keep clear of"),
    Watchdog("guard_lands", Reaction.LAND, "the guard lands the robot, because the policy was silent"),
)
WATCHDOGS: dict[str, Watchdog] = {watchdog.code: watchdog for watchdog in _WATCHDOGS}  # by code
UNKNOWN = Watchdog("unknown", Reaction.FAULT, "a reason that no watchdog knows")
EVENTS = {
    Reaction.HOLD: Event.BRAKE_REASON,
    Reaction.LAND: Event.LAND,
    Reaction.STOP: Event.ESTOP,
    Reaction.FAULT: Event.BREAK,
    Reaction.DEACTIVATE: Event.GUARD_LOST,
}
"""The event that a watchdog of that reaction causes; the others cause none."""


def code_of(reason: str) -> str:
    """Return the stable code of a reason, ``code: details``."""
    return reason.partition(":")[0].strip()


def watchdog_of(reason: str) -> Watchdog:
    """Return the watchdog of a reason; `UNKNOWN` for an unknown one."""
    return WATCHDOGS.get(code_of(reason), UNKNOWN)


def severity_of(reason: str) -> int:
    """Return the place of a reason's reaction in `Reaction`, from the mildest on."""
    return list(Reaction).index(watchdog_of(reason).reaction)
