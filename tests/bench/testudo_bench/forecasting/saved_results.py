"""A JSON file of parts of a long benchmark that are done, from which the same command goes on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError

_SETTINGS, _PLANT_SETTINGS, _PLANTS, _PARTS = "settings", "plant_settings", "plants", "parts"


@dataclass
class SavedResults:
    """What is done so far: plants, which hold for every policy, and parts, which hold for equal settings only.

    Of a change of the code the file knows nothing: then a new file is right.
    """

    file: Path | None  # None: nothing is kept
    settings: Mapping[str, Any]
    plant_settings: Mapping[str, Any] = field(default_factory=dict)
    plants: list[Any] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)

    def begin_plants(self, settings: Mapping[str, Any]) -> list[Any]:
        """Return the plants of earlier calls with equal settings, and take over what else they kept.

        Raises:
            TestudoError: the file has other contents, or plants of other settings.
        """
        self.plant_settings = dict(settings)
        if self.file is None or not self.file.exists():
            return self.plants
        try:
            values = json.loads(self.file.read_text(encoding="utf-8"))
            known, plants = values[_PLANT_SETTINGS], values[_PLANTS]
            same = values.get(_SETTINGS) == self.settings
            parts = dict(values.get(_PARTS, {})) if same else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TestudoError(f"--json {self.file}: found no plants to go on from; give another file") from error
        if known != self.plant_settings:
            raise TestudoError(
                f"--json {self.file}: plant_settings: found {known}, expected {dict(self.plant_settings)}"
            )
        self.plants, self.parts = list(plants), parts
        return self.plants

    def add_plant(self, plant: Any) -> None:
        """Keep a further plant."""
        self.plants.append(plant)
        self._write()

    def known(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a part of JSON values; made, and kept, unless it is known."""
        if name not in self.parts:
            self.parts[name] = make()
            self._write()
        return self.parts[name]

    @property
    def values(self) -> dict[str, Any]:
        """Return JSON-ready values, from which a later call goes on."""
        kept = {_SETTINGS: dict(self.settings), _PLANT_SETTINGS: dict(self.plant_settings)}
        return kept | {_PLANTS: self.plants, _PARTS: self.parts}

    def _write(self) -> None:
        if self.file is not None:
            write_whole(self.file, json.dumps(self.values) + "\n")
