"""README and docs are true to the program: commands parse, links lead somewhere, examples run."""

import contextlib
import functools
import inspect
import io
import re
import shlex
import warnings
from importlib import metadata, resources
from pathlib import Path

import pytest
import tyro

from testudo_deploy.cli import verbs
from testudo_deploy.files import registered
from testudo_deploy.fleet.fleet import load_fleet
from testudo_hardware.motion import motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, KINDS, QUANTITIES, VELOCITY_POINT
from testudo_hardware.spec import load_robot

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("hardware", "deploy", "sim", "policies", "ros_ws", "tests")
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in SOURCE_ROOTS),
)
SCENARIO_SIZE, WORLDS = 4, 3


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def fenced(text, language):
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def words_after(program):
    """Return (page, command) for each command of a program, in code blocks and in `code`."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        inline = re.findall(r"`([^`\n]+)`", text)
        blocks = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        for command in (*inline, *blocks):
            bare = re.sub(r"^\S*/bin/", "", command).partition("#")[0].strip()
            if bare.startswith(f"{program} "):
                found.append((name_of(page), bare))
    return sorted(set(found))


COMMANDS = [
    (page, command)
    for page, command in words_after("testudo")
    if "VERB" not in command and not command.startswith("testudo --")
]


def options_of(command):
    """Return (verb, option, number or word) for each word of a command that is a value, and (verb, option)."""
    _, verb, *words = shlex.split(command)
    found, option = {(verb,)}, ""
    for word in words:
        option = word.partition("=")[0] if word.startswith("--") else option
        found.add((verb, option, "" if word.startswith("--") else bool(re.fullmatch(r"-?[\d.e-]+", word))))
    return found


def commands_with_all_options():
    """Return commands that hold every option of any command, each with a number and with a word if there are both.

    An option that is written wrongly in one command alone is thereby among them.
    """
    left, chosen = {}, []
    for item in COMMANDS:
        left[item] = options_of(item[1])
    todo = set().union(*left.values())
    for item in sorted(left, key=lambda item: (-len(left[item]), item)):
        if left[item] & todo:
            chosen.append(item)
            todo -= left[item]
    return chosen


CHOSEN = set(commands_with_all_options())


def case_name(value):
    return value.replace(" ", "_")


def test_the_pages_are_found_with_their_commands():
    assert len(PAGES) > len(SOURCE_ROOTS) + 5
    assert {command.split()[1] for _, command in COMMANDS} >= {
        "train", "evaluate", "export", "inspect", "up", "replay", "bench", "demo"
    }  # fmt: skip


@functools.cache  # several pages name the same command
def complaint(command):
    """Return what the program says against a command line; empty where it parses."""
    _, verb, *words = shlex.split(command)
    assert verb in verbs(), f"there is no verb {verb!r}"
    function = verbs()[verb].load()
    if not words:  # a verb that is only mentioned
        return ""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            tyro.cli(recorded(function), prog=f"testudo {verb}", args=words)
        except SystemExit as end:
            return said.getvalue() if end.code else ""
    return ""


def recorded(function):
    """Return a function of the same signature that does nothing."""

    def nothing(*_, **__):
        return 0

    nothing.__signature__ = inspect.signature(function, eval_str=True)
    nothing.__annotations__ = {name: item.annotation for name, item in nothing.__signature__.parameters.items()}
    nothing.__doc__ = inspect.getdoc(function)
    return nothing


@pytest.mark.parametrize(
    ("page", "command"),
    [pytest.param(*item, marks=[] if item in CHOSEN else [pytest.mark.slow]) for item in COMMANDS],
    ids=case_name,
)
def test_a_command_parses(page, command):
    said = complaint(command)
    assert not said, f"{page}: {command}\n{said}"


@pytest.mark.parametrize(
    "command",
    ["testudo train --colour red", "testudo bench robot --policies x", "testudo up --seed many"],
)
def test_a_wrong_command_is_seen(command):
    assert complaint(command)


def test_every_option_of_a_page_is_in_a_command_that_is_parsed():
    parsed = set().union(*(options_of(command) for _, command in CHOSEN))
    assert all(options_of(command) <= parsed for _, command in COMMANDS)
    assert options_of("testudo train --colour 3") - parsed == {("train", "--colour", ""), ("train", "--colour", True)}


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {command.split()[1] for _, command in words_after("make")}
    assert named >= {"demo", "test"}
    assert named <= targets


def test_what_is_given_to_make_demo_parses():
    given = [re.search(r'ARGS="(.*)"', command) for _, command in words_after("make demo")]
    assert any(given)
    assert not any(complaint(f"testudo demo {found[1]}") for found in given if found)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere_in_the_repository(page):
    text = page.read_text(encoding="utf-8")
    assert "://" not in re.sub(r"\b(radio|udp)://", "", text)  # addresses of radios lead nowhere
    for link in re.findall(r"\]\(([^)]+)\)", text):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.is_relative_to(ROOT), link
        assert path.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_is_named_by_its_path_exists(page):
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"\]\([^)]+\)", "]", text)  # links are from the page on, and have their own test above
    named = re.findall(rf"\b(?:{'|'.join(SOURCE_ROOTS)}|docs|tools)/[\w./-]+\.\w+", text)
    assert all((ROOT / path).exists() for path in named), named


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_module_that_is_named_exists(page):
    """Dotted names in backticks, as in the glossary: a package, a module, or a name that a module defines."""
    text = page.read_text(encoding="utf-8")
    missing = [name for name in re.findall(r"`(testudo_\w+(?:\.\w+)+)`", text) if not _is_defined(name)]
    assert not missing


def _is_defined(name):
    parts = name.split(".")
    for root in SOURCE_ROOTS:
        place = next((found.parent for found in (ROOT / root).glob(f"**/{parts[0]}/__init__.py")), None)
        if place is None:
            continue
        module = place.joinpath(*parts[1:])
        if module.is_dir() or module.with_suffix(".py").is_file():
            return True
        owner = module.parent / "__init__.py" if module.parent.is_dir() else module.parent.with_suffix(".py")
        if owner.is_file() and re.search(rf"\b{parts[-1]}\b", owner.read_text(encoding="utf-8")):
            return True
    return False


def test_pictures_are_small():
    pictures = list((ROOT / "docs" / "images").iterdir())
    assert pictures
    assert all(path.stat().st_size <= 400_000 for path in pictures)


def test_the_robot_of_the_page_is_a_robot(tmp_path):
    blocks = fenced((ROOT / "docs/hardware.md").read_text(encoding="utf-8"), "toml")
    file = tmp_path / "my_robot.toml"
    file.write_text(next(block for block in blocks if block.startswith("schema")))
    spec = load_robot(file)
    assert spec.name == "my_robot"
    assert motion_model(spec).spec is spec


def test_the_table_of_robot_keys_is_that_of_the_schema():
    text = (ROOT / "docs/hardware.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (\S+) \| (\S+) to (\S+) \| (\w+) \|", text, re.MULTILINE)
    words = {KINDS: "all", (DIFFERENTIAL_DRIVE,): "wheeled", (VELOCITY_POINT,): "drones"}
    assert {key: (unit, float(low), float(high), kind) for key, unit, low, high, kind in rows} == {
        key: (rule.unit, rule.low, rule.high, words[rule.kinds]) for key, rule in QUANTITIES.items()
    }


def test_every_robot_that_ships_stands_on_the_page():
    text = (ROOT / "docs/hardware.md").read_text(encoding="utf-8")
    folder = resources.files("testudo_hardware") / "robots"
    names = {file.name.removesuffix(".toml") for file in folder.iterdir() if ".toml" in file.name}
    assert names == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_the_fleet_of_the_page_is_a_fleet(tmp_path):
    (block,) = fenced((ROOT / "docs/concepts.md").read_text(encoding="utf-8"), "yaml")
    file = tmp_path / "fleet.yaml"
    file.write_text(block)
    assert load_fleet(file).names == ("r0", "r1")


@pytest.fixture
def own_package(tmp_path, monkeypatch):
    """Install the scenarios of the tutorial as a package of their own, outside the repository."""
    text = (ROOT / "docs/tutorials/your_scenario.md").read_text(encoding="utf-8")
    (project,) = fenced(text, "toml")
    group, entries = re.search(r'entry-points\."(.+?)"\]\n(.+?)\n\n', project, re.DOTALL).groups()
    facts = tmp_path / "my_scenarios-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-scenarios\nVersion: 0.1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{entries.replace(chr(34), '')}\n")
    for code in fenced(text, "python"):
        if named := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / named[1]).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registered, "_all_entry_points", metadata.entry_points)  # a process searches only once


def test_a_scenario_with_a_prey_and_events_is_short():
    code = fenced((ROOT / "docs/tutorials/your_scenario.md").read_text(encoding="utf-8"), "python")[1]
    assert "flees" in code
    assert len(code.splitlines()) <= 80


@pytest.mark.usefixtures("own_package", "quick")
@pytest.mark.parametrize(("name", "signal"), [("ring", "goal_world"), ("hare", "hare_position_world")])
def test_a_scenario_of_the_tutorial_keeps_the_rules_and_runs(name, signal):
    jax = pytest.importorskip("jax")
    from testudo_deploy.shield.projection_margins import projection_parameters
    from testudo_policies.learning.builder import make_environment
    from testudo_sim.scenarios.scenario_check import check_scenario

    spec = load_robot("gritsbot_x")
    check_scenario(name, spec, SCENARIO_SIZE)
    environment = make_environment(name, spec, projection_parameters(spec), SCENARIO_SIZE)
    world = environment.reset(jax.random.split(jax.random.key(0), WORLDS))
    assert environment.signals(world)[signal].shape == (WORLDS, SCENARIO_SIZE, 2)
    nominal = jax.numpy.zeros((WORLDS, SCENARIO_SIZE, 2))
    _, result = jax.eval_shape(environment.step, world, nominal, jax.random.key(1))
    assert result.reward.shape == (SCENARIO_SIZE, WORLDS)
    assert result.terminated.shape == (WORLDS,)
