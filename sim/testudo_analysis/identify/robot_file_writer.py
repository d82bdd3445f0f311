"""Writes identified parameters to a robot file, with intervals and provenance.

Simulation, the shield's margins and domain randomisation read it like any robot file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testudo_analysis.identify.estimation.identification_result import Identification
from testudo_deploy.files.atomic_files import whole_file
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import MOTION_NOISE, QUANTITIES, RESPONSE, RESPONSE_NOISE, ROTORS
from testudo_hardware.spec import SpecError, parse_robot, robot_files
from testudo_hardware.strict_files import read_toml

_RULES = QUANTITIES | ROTORS | MOTION_NOISE | RESPONSE | RESPONSE_NOISE
_HEAD = ("schema", "name", "kind", "description")


def write_identified(
    spec_source: str | Path, identification: Identification, path: str | Path, verb: str = "identify"
) -> None:
    """Write a robot file with the identified parameters.

    Estimates that are not determined or have no key in a robot file do not change it; they are in its head comment.

    ``spec_source`` is the registered robot or robot file that was identified; ``path`` of the new file ends in
    ``.toml``; ``verb`` is that which made the numbers.

    Raises:
        TestudoError: the source or the new file is invalid, or it cannot be written.
    """
    target = Path(path)
    if target.suffix != ".toml":
        raise TestudoError(f"--out: found {target}, expected a file that ends in .toml")
    origin = provenance(identification, verb)
    tables, where = read_toml(spec_source, robot_files(), "robot", SpecError)
    parse_robot(tables, where)
    merged = {
        section: dict(content) if isinstance(content, Mapping) else content for section, content in tables.items()
    }
    for estimate in identification.estimates:
        if estimate.determined and estimate.key in _RULES:
            section, name = estimate.key.split(".")
            if section == "rotors" and section not in tables:  # all of its keys or none
                continue
            rule = _RULES[estimate.key]
            if estimate.unit != rule.unit:
                raise TestudoError(f"{estimate.key}: found unit {estimate.unit!r}, expected {rule.unit!r}")
            low, high = (min(max(end, rule.low), rule.high) for end in estimate.hull)
            value = min(max(estimate.value, low), high)
            merged.setdefault(section, {})[name] = {
                "value": _rounded(value),
                "unit": rule.unit,
                "source": origin,
                "interval": [min(_rounded(low), _rounded(value)), max(_rounded(high), _rounded(value))],
            }
    lines = [f"{Path(where).name} as identified: {origin}"]
    for estimate in identification.estimates:
        found = f"{estimate.value:.4g} in [{estimate.low:.4g}, {estimate.high:.4g}] {estimate.unit}"
        if not estimate.determined:
            lines.append(f"{estimate.key}: not determined by this run ({found}): {estimate.note}")
        elif estimate.key not in _RULES:
            lines.append(f"{estimate.key}: {found}" + (f" ({estimate.note})" if estimate.note else ""))
    text = robot_text(merged, [" ".join(line.split()) for line in lines])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:  # the new file must be valid, too
            partial.write_text(text, encoding="utf-8")
            parse_robot(read_toml(partial, {}, "robot", SpecError)[0], str(target))
    except OSError as error:
        raise TestudoError(f"{target}: cannot be written: {error.strerror}") from error


def provenance(identification: Identification, verb: str = "identify") -> str:
    """Return the provenance of the numbers in one line."""
    facts = identification.facts
    words = [f"testudo {verb} {facts.get('version', '')}".strip()]
    names = {"run": "run", "sha256": "run_sha256", "recorded": "recorded", "windows": "windows", "robots": "fitted"}
    words += [f"{name} {facts[key]}" for name, key in names.items() if facts.get(key)]
    return ", ".join(words)


def robot_text(tables: Mapping[str, Any], comments: list[str]) -> str:
    """Return the TOML text of a robot's tables, below comments."""
    lines = [f"# {line}" for line in comments]
    lines += [f"{key} = {_text(tables[key])}" for key in _HEAD]
    for section, content in tables.items():
        if section in _HEAD:
            continue
        lines += ["", f"[{section}]"]
        for name, entry in content.items():
            inner = ", ".join(f"{key} = {_text(value)}" for key, value in entry.items())
            lines.append(f"{name} = {{ {inner} }}")
    return "\n".join(lines) + "\n"


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _text(value: Any) -> str:
    """Return a TOML value; JSON strings and numbers are valid TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
