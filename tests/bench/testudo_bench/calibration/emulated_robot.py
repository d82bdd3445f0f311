"""An emulated robot with hidden parameters: the file that the fleet believes, and the one by which the plant moves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_analysis.identify.robot_file_writer import robot_text
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.launch_plan import ProcessPlan
from testudo_hardware.links.link_profile import DEFAULT_LINK, link_files
from testudo_hardware.spec import load_robot

NAME = "tb1"
_GRID_S = 0.005  # the plant acts on steps of this length: hidden delays are multiples of it
_BETTER = 1.4  # hidden limits are up to this much above those of the file; below, the brake monitor stops the robot
HIDDEN = (
    "dynamics.velocity_lag",
    "dynamics.command_delay",
    "dynamics.speed_scale",
    "dynamics.turn_scale",
    "limits.acceleration",
    "limits.turn_acceleration",
)


@dataclass(frozen=True)
class Emulation:
    """One kind of localisation."""

    name: str
    robot: str
    area: str
    position_sigma_m: float
    pose_max_age_s: float
    rate_hz: float
    latency_s: tuple[float, float]


_FLEET = f"""fileversion: 1
policy: policy.onnx
policy_sha256: "{"0" * 64}"
robots:
  {NAME}:
    type: known.toml
    initial_position: [0.0, 0.0]
    initial_yaw: 0.3
    goal: [0.5, 0.5]
    link: link.toml
"""
EMULATIONS = {
    "tracked": Emulation("tracked", "turtlebot4", "2x2", 0.005, 0.15, 60.0, (0.02, 0.06)),
    # 3 x 3 m: with three sigma of 15 cm the shield keeps 0.85 m from the sides
    "odometry": Emulation("odometry", "turtlebot4", "3x3", 0.05, 0.3, 20.0, (0.1, 0.15)),
}


@dataclass(frozen=True)
class EmulatedRobot:
    """The files of one robot."""

    fleet: Fleet  # as its user knows it
    truth: dict[str, float]  # hidden values by key of the robot file
    emulation: Emulation
    seed: int

    def change(self, processes: tuple[ProcessPlan, ...]) -> Sequence[ProcessPlan]:
        """Return the processes of a drive with a plant that moves by the hidden values."""
        low, high = self.emulation.latency_s
        known = Path(str(processes[0].parameters["fleet"]))
        hidden = known.with_name("hidden.yaml")
        hidden.write_text(known.read_text(encoding="utf-8").replace("known.toml", "hidden.toml"), encoding="utf-8")
        own = {"fleet": str(hidden), "latency_low_s": low, "latency_high_s": high}
        return [replace(one, parameters={**one.parameters, **own}) if one.name == "plant" else one for one in processes]


def emulated_robot(emulation: Emulation, seed: int, folder: Path) -> EmulatedRobot:
    """Write the files of a robot whose values are drawn from the intervals of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 23])
    spec = load_robot(emulation.robot)
    known: dict[str, Any] = spec.to_dict()
    for key, value in (("position_error", 3 * emulation.position_sigma_m), ("pose_max_age", emulation.pose_max_age_s)):
        known["sensing"][key] |= {"value": value, "interval": [value, value]}
    truth = {key: float(rng.uniform(spec.quantities[key].low, spec.quantities[key].high)) for key in HIDDEN[:4]}
    truth["dynamics.command_delay"] = round(truth["dynamics.command_delay"] / _GRID_S) * _GRID_S
    truth |= {key: spec.quantities[key].value * float(rng.uniform(1.0, _BETTER)) for key in HIDDEN[4:]}
    hidden = {section: dict(content) if isinstance(content, dict) else content for section, content in known.items()}
    for key, value in truth.items():
        section, name = key.split(".")
        hidden[section][name] = {**known[section][name], "value": value, "interval": [value, value]}
    link = (
        link_files()[DEFAULT_LINK].read_text(encoding="utf-8").replace("value = 60.0", f"value = {emulation.rate_hz}")
    )
    (folder / "link.toml").write_text(link, encoding="utf-8")
    for name, tables in (("known", known), ("hidden", hidden)):
        (folder / f"{name}.toml").write_text(robot_text(tables, []), encoding="utf-8")
    (folder / "known.yaml").write_text(_FLEET, encoding="utf-8")
    return EmulatedRobot(load_fleet(folder / "known.yaml"), truth, emulation, seed)
