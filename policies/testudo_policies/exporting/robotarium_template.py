"""The text around the code in the file for the Robotarium."""

IMPORTS = ("import base64", "import io", "from types import SimpleNamespace", "import numpy as np")

TEXT = '''"""{scenario} with {robots} robots on the Robotarium: policy, tracking law and shield, with NumPy alone.

Written by `testudo export --target robotarium`. Upload this file, or run it in the testbed's Python simulator with
`python FILE`. It needs Python 3.10 or later.

Robot {robot}, command {command}, policy file {sha256}.
The shield is layer 1: it keeps the distances of the policy's contract from the poses of this step. Only the first
block is meant to be changed. Names that appear only in annotations are not defined.
"""

from __future__ import annotations

{imports}

# ---- may be changed

DURATION_S = {duration_s:g}
SHOW_FIGURE = True
START_POSES = np.array(  # (3, N): x [m], y [m], heading [rad]
    {start_poses}
)
GOALS_WORLD = np.array(  # (2, N): x, y [m]
    {goals_world}
)

# ---- code, as robots run it; each part is copied from the module above it

{code}
# ---- the contract of the policy

SPEC = SimpleNamespace(
{spec}
)
SHIELD = {shield}
ARENA = {arena}
CONTRACT = SimpleNamespace(
{contract}
)

# ---- the policy: operation, inputs, outputs and attributes of each node; weights and test vector

INPUTS = {inputs}
NODES = [
{nodes}
]
ARRAYS = """
{arrays}
"""


def make_policy() -> GraphPolicy:
    """Return the policy; refuses to go on if this machine computes something else than its test vector."""
    with np.load(io.BytesIO(base64.b64decode(ARRAYS))) as packed:
        arrays = {{name: packed[name] for name in packed.files}}
    graph = Graph(NODES, {{name: value for name, value in arrays.items() if "." not in name}})
    found = graph.run({{name: arrays[f"given.{{name}}"] for name in INPUTS}})
    for name, expected in arrays.items():
        if name.startswith("expected."):
            deviation = np.max(np.abs(found[name.partition(".")[2]] - expected))
            if not deviation <= {tolerance}:
                raise SystemExit(f"the policy deviates from its test vector by {{deviation:.3g}}: export it again")
    return GraphPolicy(CONTRACT, INPUTS, graph)


def make_team() -> RobotariumTeam:
    """Return the team for the goals above."""
    return RobotariumTeam(SPEC, SHIELD, ARENA, make_policy(), GOALS_WORLD)


def main() -> None:
    """Drive the team on the testbed or in its simulator."""
    team = make_team()
    if START_POSES.shape != (3, team.size):
        raise SystemExit(f"START_POSES: found shape {{START_POSES.shape}}, expected {{(3, team.size)}}, one per goal")
    from rps.robotarium import Robotarium

    robotarium = Robotarium(
        number_of_robots=team.size,
        show_figure=SHOW_FIGURE,
        initial_conditions=START_POSES,
        sim_in_real_time=True,
    )
    said = ""
    for _ in range(round(DURATION_S / team.period_s)):
        commands = team.commands(robotarium.get_poses())
        if team.reason != said:
            said = team.reason
            print(said or "all robots drive")
        robotarium.set_velocities(np.arange(team.size), commands)
        robotarium.step()
    # older versions of the testbed's program report at the end by the first name, newer ones by the second
    (getattr(robotarium, "call_at_scripts_end", None) or robotarium.debug)()


if __name__ == "__main__":
    main()
'''
