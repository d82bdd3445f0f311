"""`testudo wrap`: makes a policy file of a plain ONNX policy from another library."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from testudo_policies.commands.export import export_numbers, export_table
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.exporting.packaging import write_fleet
from testudo_policies.wrapping.wrap_file import WrapError, load_wrap_file
from testudo_policies.wrapping.wrapping import wrap_policy


def wrap(
    policy: Annotated[Path, tyro.conf.Positional],
    *,
    contract: Path,
    out: Path = Path("policy.onnx"),
    fleet: Path | None = None,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Give the ONNX policy of another library (rsl_rl, Stable-Baselines3, JaxMARL) the contract of a policy file.

    A YAML file says which signals its observation is made of, and what its action means. The composed graph is written
    only if it equals the original on more than 10,000 inputs and along closed loops in the scenario. Every verb and
    node then takes it, and the shield acts on its commands.

    Example:
        testudo wrap my.onnx --contract c.yaml
        testudo wrap my.onnx --contract c.yaml --out wrapped/policy.onnx --fleet wrapped/fleet.yaml

    Args:
        policy: the ONNX file, from observation to action.
        contract: the description, see docs/adapters.md.
        out: policy file to write.
        fleet: fleet file to write; default: fleet.yaml beside the policy file.
        seed: seed of the starts and goals in the fleet file.
        json: file for the results.
    """
    console = Console()
    check_output(json)
    if out.resolve() == policy.resolve():
        raise WrapError(f"--out {out}: is the policy itself; expected another file")
    described = load_wrap_file(contract)
    with console.status("composing and comparing with the original"):
        report, components = wrap_policy(policy, described, out)
        fleet_path = write_fleet(components, report, fleet or out.with_name("fleet.yaml"), seed)
    console.print(export_table(report))
    console.print(f"decides every {report.contract.decision_period_s:.3g} s, as {described.scenario} does")
    write_output(json, export_numbers(report), console)
    console.print(f"next: testudo inspect {out}   testudo up --policy {out} --fleet {fleet_path}")
