"""A robot that wanders under random commands, what its sensors say of it, and its monitor of assumptions."""

import numpy as np
from tests.deploy.body import STEP_S, Body
from tests.deploy.noisy_robot import noisy

from testudo_deploy.monitoring.assumption_monitor import AssumptionMonitor
from testudo_hardware.motion import LagResponse, MotionState
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.motion.motion_noise import MotionNoise, advance, displace, velocity_error
from testudo_hardware.schema import DIFFERENTIAL_DRIVE

TURN_RAD_S = 1.5
HOLDS_S = (0.3, 1.0, 3.0)  # commands last for about one of these times


class Wanderer:
    """Lag, delay and scales at shares 0 to 1 of their intervals; noise with a third of each bound as sigma.

    ``residual`` are numbers of a `[motion_noise]` by which it moves, too; ``described``: its file has that table.
    """

    def __init__(self, name, *, seed, corner=(0.5, 0.5, 0.5, 0.5), residual=None, described=True):
        self.body, self.random = Body(name, *corner), np.random.default_rng(seed)
        self.spec = self.body.spec
        noise = noisy(self.spec, **residual) if residual else self.spec
        self.noise = MotionNoise.from_spec(noise)
        self.watch = AssumptionMonitor(noise if described else self.spec)
        self._process = self.random.normal(size=len(self.noise.channels)) if self.noise else None
        self.noise_share, self.twist_share, self.bias_m, self.braked = 1.0, 1.0, 0.0, False
        self._wish, self._until_s = np.zeros(self.spec.dimension), 0.0
        self._seen, self._before_s = None, None

    def change(self, *, lag_share=0.0, more_delay_s=0.0, scale_share=0.0, twist_share=1.0, noise_share=1.0):
        """Change what is named, from now on: lag, delay and scale from the end of the interval on."""
        dynamics = {key: self.spec.quantities[f"dynamics.{key}"] for key in ("velocity_lag", "command_delay")}
        if lag_share:
            lag_s = dynamics["velocity_lag"].high * lag_share
            self.body.response = LagResponse.create(np.array(STEP_S), np.array(lag_s))
        if more_delay_s:
            self.body.delay_s = dynamics["command_delay"].high + more_delay_s
        if scale_share:
            scale = self.spec.quantities["dynamics.speed_scale"]
            self.body.scale = (scale.low if scale_share < 1 else scale.high) / scale.value * scale_share
        self.twist_share, self.noise_share = twist_share, noise_share

    def restart(self):
        """Begin with a clock that was set back."""
        self.body.now_s, self.body.queue = 0.0, [(-1.0, np.zeros(self.spec.dimension))]
        self._until_s, self._seen, self._before_s = 0.0, None, None

    def drive(self, seconds, *, to_the_end=False):
        """Drive until the first finding, or to the end; returns the finding."""
        period_s = self.spec.control_period_s
        for _ in range(round(seconds / period_s)):
            now_s = self.body.now_s
            if self._seen is not None:  # one period old
                if self._before_s is not None:
                    self._watch(now_s)
                self._before_s = self._seen[1]
                if self.watch.finding and not to_the_end:
                    self._seen = None
                    break
            self._seen = self._measured(), now_s
            effective = effective_command(self.body.model, self._command(now_s))
            self.watch.send(now_s, effective)
            self.body.send(0 * effective if self.braked else effective)
            self._move(period_s)
        return self.watch.finding

    def _move(self, period_s):
        before = self.body.state
        self.body.move(period_s)
        if self.noise is None:
            return
        after, normal = self.body.state, self.random.normal(size=len(self._process))
        self._process = advance(self.noise, self._process, normal, period_s)
        mean, change = (before.velocity + after.velocity) / 2, (after.velocity - before.velocity) / period_s
        error = velocity_error(self.noise, self._process, mean, change)
        self.body.state = displace(self.noise, after, error, period_s)

    def _watch(self, now_s):
        measured, stamp_s = self._seen
        if self.braked:
            self.watch.pause(measured, stamp_s)
        else:
            self.watch.follow(measured, self._before_s, stamp_s)

    def _command(self, now_s):
        random, spec = self.random, self.spec
        if now_s >= self._until_s:
            self._until_s = now_s + random.choice(HOLDS_S) * random.uniform(0.5, 1.5)
            drives = random.random() < 0.75
            if spec.kind == DIFFERENTIAL_DRIVE:
                ahead, turn = random.uniform(-0.3, 1) * spec.speed_limit_m_s * drives, random.uniform(-1, 1)
                self._wish = np.array([ahead, turn * min(TURN_RAD_S, spec.turn_rate_limit_rad_s)])
            else:
                way = random.normal(size=spec.dimension) * np.array([1, 1, 0.3][: spec.dimension])
                self._wish = way / np.linalg.norm(way) * random.uniform(0.2, 1) * spec.speed_limit_m_s * drives
        return self.body.model.limit_command(self._wish)

    def _measured(self):
        state, spec = self.body.state, self.spec

        def noise(bound, size=None):
            return np.clip(self.random.normal(size=size), -3, 3) * bound / 3

        place = noise(spec.position_error_m * self.noise_share, spec.dimension) + self.bias_m
        velocity = noise(spec.velocity_error_m_s, spec.dimension)
        turned = 0.0
        if spec.kind == DIFFERENTIAL_DRIVE:
            velocity = np.array([velocity.sum() / 2, (velocity[0] - velocity[1]) / spec.wheel_base_m])
            turned = noise(spec.yaw_error_rad * self.noise_share)
        return MotionState(
            state.position_world + place, state.yaw + turned, self.twist_share * state.velocity + velocity
        )
