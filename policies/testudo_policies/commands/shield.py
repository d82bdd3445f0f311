"""`testudo shield`: writes the policy file with which robots follow the commands of another program, shielded."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_policies.commands.export import export_numbers, export_table
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.wrapping.commanded_policy import write_commanded_policy

_NEXT = """next: in the fleet file, for every robot the topic on which the other program publishes:
    policy: {file}
    policy_sha256: {sha256}
    robots:
      r0: {{link: {{profile: PROFILE, commands: {{topic: cmd_vel_nav}}}}, ...}}
then start the fleet as any other: docs/hardware.md#commands-of-another-program"""


def shield(
    robot: Annotated[str, tyro.conf.Positional],
    *,
    out: Path = Path("shield.onnx"),
    arena: tuple[float, ...] = (),
    json: Path | None = None,
) -> None:
    """Write the policy file for robots that another program commands (nav2, teleoperation): the shield and no policy.

    Each robot follows the velocity commands that it hears on a topic of its own, as far as no robot, wall or obstacle
    is in the way; its peers are the other robots of the fleet file. It brakes when the commands end.

    Example:
        testudo shield turtlebot4 --out shield.onnx
        testudo shield turtlebot4 --arena -3 -2 3 2

    Args:
        robot: a registered robot, or a robot file.
        out: policy file to write.
        arena: walls: lowest and highest corner, such as X Y X Y [m, fleet's frame]; none if left out.
        json: file for the results.
    """
    console = Console()
    check_output(json)
    spec = load_robot(robot)
    report = write_commanded_policy(out, spec, _arena(arena, spec))
    console.print(export_table(report))
    write_output(json, export_numbers(report), console)
    console.print(Text(_NEXT.format(file=out, sha256=report.sha256)), soft_wrap=True)


def _arena(corners: tuple[float, ...], spec: RobotSpec) -> Arena | None:
    if not corners:
        return None
    size = spec.dimension
    low, high = corners[:size], corners[size:]
    if len(high) != size or not all(below < above for below, above in zip(low, high, strict=True)):
        raise TestudoError(
            f"--arena: found {list(corners)}, expected {size} numbers of the lowest corner, then of the highest"
        )
    return Arena(low, high)
