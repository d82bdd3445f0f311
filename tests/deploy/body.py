"""A robot's body in steps of 2 ms: lag, delay and scale anywhere in their intervals, and what may break in it."""

import numpy as np

from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot

STEP_S = 0.002
SLIDE_M_S2 = 9.81


class Body:
    """A robot whose lag, delay and scales lie at shares 0 to 1 of their intervals, with brakes of some share."""

    def __init__(self, name, lag=0.5, delay=0.5, scale=0.5, turn_scale=None, brakes=1.0):
        self.spec = load_robot(name)
        self.model, self.brakes, self.now_s = motion_model(self.spec), brakes, 0.0
        lag, self.delay_s, self.scale = (
            self._at(key, share)
            for key, share in (("velocity_lag", lag), ("command_delay", delay), ("speed_scale", scale))
        )
        # over the described one, which the effective command has in it already
        self.scale = self.scale / self.spec.speed_scale
        if turn_scale is not None and self.wheeled:
            self.scale = np.array([self.scale, self._at("turn_scale", turn_scale) / self.spec.turn_scale])
        self.response = LagResponse.create(np.array(STEP_S), np.array(lag))
        size = self.spec.dimension
        self.state = MotionState(np.zeros(size), np.array(0.0), np.zeros(size))
        self.queue = [(-1.0, np.zeros(size))]
        self.blocked = ()
        """What does not move any more: "left", "right", or both; all of a robot without wheels."""
        self.drift = 0.0
        """(D,) [m/s] by which the velocity is off what was asked for."""

    @property
    def wheeled(self):
        return self.spec.kind == DIFFERENTIAL_DRIVE

    def _at(self, key, share):
        quantity = self.spec.quantities[f"dynamics.{key}"]
        return quantity.low + share * (quantity.high - quantity.low)

    def send(self, effective):
        self.queue.append((self.now_s + self.delay_s, np.asarray(effective, float)))

    def move(self, time_s):
        for _ in range(round(time_s / STEP_S)):
            while len(self.queue) > 1 and self.queue[1][0] <= self.now_s:
                self.queue.pop(0)
            command = self.queue[0][1] * self.scale + self.drift
            after = self.model.step(self.state, command, self.response)
            change = after.velocity - self.state.velocity
            slows = change * self.state.velocity
            slows = slows[0] if self.wheeled else slows.sum()
            if slows < 0 and self.brakes < 1:
                weaker = self.state.velocity + self.brakes * change / self.response.gain
                after = self.model.step(self.state, weaker, self.response)
            self.state = self._held(after) if self.blocked else after
            self.now_s += STEP_S

    def _held(self, after):
        """Return the state after a step in which what is blocked slides to rest, as fast as rubber does."""
        held, slide = 0 * after.velocity, np.full(after.velocity.shape, SLIDE_M_S2 * STEP_S)
        if self.wheeled:
            base = self.spec.wheel_base_m
            slide[1] *= 2 / base
            if len(self.blocked) == 1:
                sign = 1 if self.blocked[0] == "left" else -1
                # the other wheel goes on as it is told
                rim = (self.queue[0][1] * self.scale) @ np.array([1, sign * base / 2])
                held = np.array([rim / 2, sign * rim / base])
        velocity = self.state.velocity + np.clip(held - self.state.velocity, -slide, slide)
        still = MotionState(self.state.position_world, self.state.yaw, velocity)
        return self.model.step(still, velocity, self.response)


def measured(body, error, yaw_error=0.0):
    """Return the pose with an error within the bound of its localisation."""
    error = np.asarray(error) / max(1.0, float(np.linalg.norm(error)))
    return MotionState(
        body.state.position_world + body.spec.position_error_m * error,
        body.state.yaw + body.spec.yaw_error_rad * yaw_error,
        body.state.velocity,
    )
