"""The names of the robots in a fleet file, read without the rest of it: an emergency stop waits for no check."""

from pathlib import Path

from testudo_deploy.files.strict_yaml import parse_tables, read_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import is_table

_EXPECTED = "a fleet file with robots"


def robot_names(path: str | Path) -> tuple[str, ...]:
    """Return the names, in the order of the file; `testudo_deploy.fleet.fleet.load_fleet` checks everything else.

    Raises:
        TestudoError: unreadable, or without robots.
    """
    file = Path(path)
    tables = parse_tables(read_text(file, "fleet file", TestudoError, _EXPECTED), file, TestudoError, _EXPECTED)
    robots = tables.get("robots")
    if not is_table(robots) or not robots:
        raise TestudoError(f"{file}: robots: found none, expected at least one")
    return tuple(map(str, robots))
