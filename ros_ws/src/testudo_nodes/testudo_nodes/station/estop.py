"""`testudo estop`: stop a fleet and show the confirmations; `quick_stop` does it, and its command starts there."""

from pathlib import Path

import tyro

from testudo_nodes.station.quick_stop import StopOrder, stop


def estop(
    fleet: tyro.conf.Positional[Path | None] = None,
    release: bool = False,
    wait: float = 5.0,
    domain: int | None = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Stop a fleet by its emergency stop, and show which guards confirmed that they brake.

    It is pressed at once by the resident process `emergency_stop` where that runs on this computer; elsewhere this
    program finds the robots first. The stop remains when it ends. To drive again: `--release`, then `testudo rearm`
    for each robot. The exit status is 0 only if every robot of the file, or without one every robot that was found,
    confirmed. A fleet file that cannot be read is an error, but the stop is sent.

    Example:
        testudo estop fleet.yaml
        testudo estop --release

    Args:
        fleet: a fleet file, whose robots must all confirm; by default all robots that are heard.
        release: reset the stop's level instead; robots stay stopped until they are rearmed.
        wait: longest time to wait for confirmations [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
        json: also write the values to this file.
    """
    return stop(StopOrder(fleet, release, wait, domain, local, json))
