"""What the response of a drone leaves, as a random process, and the futures of flights that are sampled with it.

Accelerations that the response lacks: a force over mass, horizontal along the world's x and y, and vertical; a torque
over inertia of the tilt, about the body's x and y, and of the heading. Each is a first-order Gauss-Markov process as in
`testudo_hardware.motion.motion_noise`, with a standard deviation that grows with what the motors do: horizontal and
tilt with their torque across, heading with their torque about the vertical, vertical with their lift beyond the weight.
The controller answers what disturbs the drone, so that quick motors tell of a strong disturbance.

The controller holds the heading, and a log lacks most of its commands: a heading that the process turned comes back,
as the tilt does by the tilt stiffness of the response. `testudo identify` finds the numbers; a robot file without
`[response_noise]` has no process.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from testudo_analysis.identify.drone.causal_estimates import flat_parameters
from testudo_analysis.identify.drone.fitted_model import NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples
from testudo_analysis.identify.drone.slow_response import excess_lift, torque_acceleration
from testudo_hardware.motion.motion_noise import CHANNEL_PARTS, NoiseChannel, advance_channel
from testudo_hardware.spec import RobotSpec

CHANNELS = ("horizontal", "vertical", "tilt", "heading")
HORIZONTAL, VERTICAL, TILT, HEADING = range(4)
AXES = ((0, 1), (2,), (3, 4), (5,))
"""Of each channel the rows of an error: three of the position, three of the rotation vector."""
_CHANNEL_OF = (HORIZONTAL, HORIZONTAL, VERTICAL, TILT, TILT, HEADING)
_NEAR = 2  # samples on either side, from which the change of a rate is taken


@dataclass(frozen=True)
class ResponseNoise:
    """The process of one drone, in the order of `CHANNELS`; accelerations in m/s² and rad/s²."""

    channels: tuple[NoiseChannel, ...]
    heading_return: float  # [1/s²]: angular acceleration back for each radian that the process turned the heading

    @classmethod
    def from_spec(cls, spec: RobotSpec) -> Self | None:
        """Return the process of a robot file; None where the file has no `[response_noise]`."""
        if not spec.response_noise:
            return None
        value = {key.removeprefix("response_noise."): one.value for key, one in spec.response_noise.items()}
        channels = tuple(NoiseChannel(*(value[f"{name}_{part}"] for part in CHANNEL_PARTS)) for name in CHANNELS)
        return cls(channels, value["heading_return"])

    def to_dict(self) -> dict[str, float]:
        """Return the numbers by the keys of the robot file, without that of the table."""
        numbers = {
            f"{name}_{part}": number
            for name, channel in zip(CHANNELS, self.channels, strict=True)
            for part, number in zip(CHANNEL_PARTS, vars(channel).values(), strict=True)
        }
        return numbers | {"heading_return": self.heading_return}


def motor_rates(model: DroneModel, flight: FlightRecord, vector: np.ndarray) -> np.ndarray:
    """Return what the deviations grow with: (2, C, T) rates, and their changes per second.

    ``vector`` (P,) are the parameters. The rates are the accelerations by the motors' torques and by their lift beyond
    the weight, at the thrust after lag and delay.
    """
    parameters = flat_parameters(model.parameters(vector[:, None]))
    thrust = model.driven(flight, vector)[1][0]
    torque, lift = torque_acceleration(parameters, thrust), excess_lift(parameters, thrust)
    across = np.hypot(torque[0], torque[1])
    rate = np.stack([across, np.abs(lift), across, np.abs(torque[2])])
    padded = np.pad(rate, ((0, 0), (_NEAR, _NEAR)), mode="edge")
    change = np.abs(padded[:, 2 * _NEAR :] - padded[:, : -2 * _NEAR]) / (2 * _NEAR * flight.period_s)
    return np.stack([rate, change])


@dataclass
class NoisyPush:
    """Accelerations of a number of futures of the samples, drawn step by step: the ``push`` of `predict`."""

    noise: ResponseNoise
    deviation: list[np.ndarray]  # (C, T) of each flight
    samples: FlightSamples
    yaw_damping: float  # [1/s]
    rng: np.random.Generator
    process: np.ndarray  # (6, K, S), of unit variance
    turned: np.ndarray  # (2, K, S): heading [rad] and yaw rate [rad/s] by the process alone

    @classmethod
    def create(
        cls,
        noise: ResponseNoise,
        model: DroneModel,
        samples: FlightSamples,
        vector: np.ndarray,
        futures: int,
        rng: np.random.Generator,
    ) -> Self:
        """Return the accelerations of K ``futures`` of the samples (S) with parameters (P,)."""
        rates = [motor_rates(model, flight, vector) for flight in samples.flights]
        deviation = [
            np.stack(
                [
                    channel.deviation + channel.share * rate[k] + channel.timing_s * change[k]
                    for k, channel in enumerate(noise.channels)
                ]
            )
            for rate, change in rates
        ]
        shape = (futures, len(samples.start))
        damping = float(vector[NAMES.index("yaw_damping")])
        return cls(noise, deviation, samples, damping, rng, rng.standard_normal((6, *shape)), np.zeros((2, *shape)))

    def __call__(self, shift: int, duration_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the accelerations that act for a time (S,) [s], ``shift`` samples after the starts.

        Of the place in the world, and of the rotation in the body: (3, K, S) each.
        """
        size = self.samples.gather(self.deviation, shift)[list(_CHANNEL_OF), None]
        push = size * self.process
        heading, rate = self.turned
        push[5] -= self.noise.heading_return * heading
        rate = rate + duration_s * (push[5] - self.yaw_damping * rate)
        self.turned = np.stack([heading + duration_s * rate, rate])
        normal = self.rng.standard_normal(self.process.shape)
        self.process = np.stack(
            [
                advance_channel(self.noise.channels[k], self.process[row], normal[row], duration_s)
                for row, k in enumerate(_CHANNEL_OF)
            ]
        )
        return push[:3], push[3:]
