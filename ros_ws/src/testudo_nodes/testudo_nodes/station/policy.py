"""`testudo policy`: gives a running fleet, whose robots stand, another policy file."""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.commands.report import table
from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.contract.policy_archive import policy_sha256
from testudo_deploy.contract.policy_change import REST, PolicyChange, PolicyChangeError, PolicyInUse
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.topic_names import CHANGE_TOPIC
from testudo_deploy.station.policy_change_run import PolicyChangeRun, in_use_topics
from testudo_nodes.station.operator_listener import StatusIgnored, check_wait, fleet_listener

_FAILED = 1
_REPEAT_S = 0.5


def policy(
    fleet: tyro.conf.Positional[Path],
    file: tyro.conf.Positional[Path],
    sha256: str = "",
    wait: float = 60.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Give a running fleet, whose robots stand, another policy file, without a restart of its processes.

    The fleet file needs `orders: true`. The file must be for the same robot, shield, arena and timing, and for a
    scenario with a goal for each robot; on other computers it is looked for at the same path, or beside the present
    file. Every process checks it and its hash, and refuses before anything is changed; while a robot drives it is
    refused, too. Then a new run folder begins. Robots are armed again by `testudo arm ROBOT --start`, and only if all
    processes use the file.

    Example:
        testudo pause r0 r1; testudo policy fleet.yaml other.onnx; testudo arm r0 r1 --start

    Args:
        fleet: the fleet file.
        file: the policy file, or the name of one that ships.
        sha256: the hash that the file must have; by default that of the file as it is.
        wait: longest time to wait for the answers to a step [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    check_wait(wait)
    found, asked = load_fleet(fleet), policy_file(file).absolute()
    if not found.orders:
        raise PolicyChangeError(f"{fleet}: orders: found false, expected true for a change without a restart")
    digest = sha256.lower() or policy_sha256(asked)
    change = PolicyChange(uuid.uuid4().hex, REST, str(asked), digest)
    checked_safety_contracts(
        replace(found, policy=asked, policy_sha256=digest)
    )  # one refusal here is clearer than one of each process
    run = PolicyChangeRun(change.change, change.policy, digest, found.names)
    with fleet_listener("policy", StatusIgnored(), ros_domain_id(domain), local=local) as listener:
        publish = _publisher(listener.node, found, run)
        while not run.done and not run.refusals:
            step, end_s = run.message.step, time.monotonic() + wait
            while not run.done and not run.refusals and run.message.step == step and time.monotonic() < end_s:
                publish(run.message)
                listener.listen(_REPEAT_S, enough=lambda step=step: run.done or run.message.step != step)
            if run.message.step == step and not run.done:
                break
    console = Console()
    rows = [(name, "NO" if name in run.refusals else "yes", text) for name, text in sorted(run.sentences.items())]
    console.print(table(f"{asked.name} {digest[:8]}", ("process", "done", "answer"), rows))
    if run.done:
        console.print(Text(f"{fleet} still names {found.policy.name}: a process that is started again uses that"))
        return 0
    console.print(Text(run.remark, "red"), soft_wrap=True)
    return _FAILED


def _publisher(node: Any, fleet: Fleet, run: PolicyChangeRun) -> Callable[[PolicyChange], None]:
    """Subscribe to the answers, and return a function that publishes a step; signed if the fleet has a key."""
    from std_msgs.msg import String  # noqa: PLC0415 -- the listener has found ROS

    from testudo_nodes.common.authentication import authentication_of  # noqa: PLC0415
    from testudo_nodes.common.qos import OFFERED, REQUESTED  # noqa: PLC0415

    def hear(message: Any) -> None:
        try:
            run.hear(PolicyInUse.decode(message.data.encode()))
        except EnvelopeError:
            return

    publisher: Any = node.create_publisher(String, CHANGE_TOPIC, OFFERED["change"])
    signed = authentication_of(node, fleet, "hw", time.monotonic)
    if signed is not None:
        publisher = signed.signing(publisher)
    for topic in in_use_topics(fleet.names):
        take = hear if signed is None else signed.verifying(String, topic, hear, keeps=True)
        node.create_subscription(String, topic, take, REQUESTED["policy_in_use"], raw=signed is not None)
    return lambda change: publisher.publish(String(data=change.encode().decode()))
