"""Whether SOURCE of a verb is a scenario whose hand-written velocities drive, and not a policy."""

from dataclasses import dataclass
from pathlib import Path

from testudo_deploy.contract.shipped_policies import shipped_policies
from testudo_hardware.errors import TestudoError
from testudo_sim.scenarios.scenario import scenario_names


@dataclass(frozen=True)
class ByHandOptions:
    """Options of a scenario that is given in place of a policy."""

    robot: str | None = None
    """Robot of a scenario: registered, or the path of a TOML file; default: gritsbot_x."""
    by_hand: bool = False
    """Hand-written velocities of a scenario, also of one whose trained policy ships."""

    def drives(self, source: Path) -> bool:
        """Return whether ``source`` is such a scenario; a file or folder of that name wins, and a policy that ships.

        Raises:
            TestudoError: an option is given, and ``source`` is none.
        """
        name = str(source)
        asked = self.by_hand or self.robot is not None or name not in shipped_policies()
        found = asked and not source.exists() and name in scenario_names()
        if self.robot is not None and not found:
            raise TestudoError(f"--robot {self.robot}: {source} has its own robots; remove the option")
        if self.by_hand and not found:
            raise TestudoError(f"--by-hand: found {source}, expected the name of a registered scenario")
        return found
