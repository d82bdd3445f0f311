"""A robot under its control loop, and its true motion in small steps; for tests of the gate and of plausibility."""

import dataclasses

import numpy as np
from tests.deploy.conftest import StubPolicy
from tests.deploy.fine_motion import STEP_S, acting, limited, roll, velocity_error

from testudo_deploy.control.control_loop import ControlLoop

BEGIN_S = 100.0


class Drive:
    """One robot r0 without trusted peers. Times are in whole steps, so that rolling in pieces is rolling at once."""

    def __init__(self, spec, truth, rng, *, untrusted=(), gate_only=False, noise=1.0, arena=None):
        size = spec.dimension
        self.spec, self.truth, self.rng, self.noise = spec, truth, rng, noise
        self.policy = StubPolicy(spec, decision_ticks=1)
        if arena is not None:
            self.policy.contract = self.policy.contract.replace(arena=arena)
        self.loop = ControlLoop(
            self.policy,
            spec,
            robot="r0",
            peers=tuple(untrusted),
            goal_world=(0.0,) * size,
            epoch="a",
            untrusted=dict.fromkeys(untrusted, 0.0),
        )
        if gate_only:
            self.loop._shield = dataclasses.replace(self.loop._shield, project=False)
        self.place, self.yaw, self.velocity = np.zeros(size), rng.uniform(-3, 3), np.zeros(size)
        self.sent = [(-10.0, np.zeros(size))]
        self.past = [(0.0, (self.place, self.yaw, self.velocity))]
        self.time_s = 0.0

    @property
    def now_s(self):
        return BEGIN_S + self.time_s

    def see(self, age_s):
        """Deliver the newest pose that is so old, with its error, and return whether it was taken."""
        wanted = self.time_s - age_s
        stamp_s, (place, yaw, velocity) = min(self.past, key=lambda item: abs(item[0] - wanted))
        size = self.spec.dimension
        offset = self.rng.standard_normal(size)
        offset *= self.noise * self.spec.position_error_m * self.rng.uniform() / np.linalg.norm(offset)
        turned = self.noise * self.spec.yaw_error_rad * self.rng.uniform(-1, 1)
        return self.loop.on_odometry(
            BEGIN_S + stamp_s,
            self.now_s,
            tuple((place + offset).tolist()),
            float(yaw + turned),
            tuple((velocity + velocity_error(self.spec, self.rng, self.noise)).tolist()),
        )

    def tick(self, wanted):
        """Run the control loop with this nominal velocity and send its command."""
        self.policy.answer = lambda signals, hidden: (np.asarray(wanted, float), hidden)
        record = self.loop.tick(self.now_s)
        self.sent.insert(0, (self.time_s, limited(self.spec, np.array(record.sent_command))))
        self.sent = self.sent[:40]
        return record

    def move(self, time_s):
        """Move for a whole number of small steps; yields nothing, keeps the past of the last second."""
        begin = self.time_s
        places, yaws, velocities = roll(
            self.spec, self.truth, (self.place, self.yaw, self.velocity), lambda t: self._acting(begin + t), time_s
        )
        for step in range(1, len(yaws)):
            self.past.append((begin + step * STEP_S, (places[step], yaws[step], velocities[step])))
        self.past = self.past[-1000:]
        self.place, self.yaw, self.velocity = places[-1], yaws[-1], velocities[-1]
        self.time_s = begin + (len(yaws) - 1) * STEP_S
        return places, velocities

    def _acting(self, time_s):
        """The driver brakes after its dead-man time."""
        command = acting(self.sent, self.truth, time_s)
        newest = next((sent for sent, _ in self.sent if sent + self.truth.delay_s <= time_s + 1e-9), None)
        too_old = newest is None or time_s - newest - self.truth.delay_s > self.spec.dead_man_s
        return 0 * command if too_old else command
