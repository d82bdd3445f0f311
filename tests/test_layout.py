"""The law of the tree: who imports whom, how large a unit may be, what a file may not hold."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.full_matrix import few_cases, kept_by, left_out

ROOT = Path(__file__).resolve().parents[1]
TRAINING_SIDE = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax",
    "brax",
    "mujoco",
    "testudo_sim",
    "testudo_analysis",
    "testudo_policies",
)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 10
MAX_LOOSE_MODULES = 6

# addresses of package hosts and of single files, and paths of one machine
FORBIDDEN_TEXT = re.compile(
    r"https?://[^\s\"'<>)]*(?:py[p]i|pythonhos[t]ed|conda|npm[j]s|crates|debian[.]org|ubuntu[.]com|"
    r"githubuser[c]ontent|releases/download|huggingface|download[.])"
    r"|https?://[^\s\"'<>)]*[.](?:whl|zip|tgz|tar|tar[.]\w+|deb|onnx|mcap|bin|sh)\b"
    r"|\bpy[p]i[.]org|pythonhos[t]ed|--(?:extra-)?index-url[= ]|--find-links[= ]"
    r"|(?<![\w.])/(?:work|root)/"
)


@functools.cache
def committed_files():
    """Return every file that is or would be committed."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip("not a git checkout: no list of the committed files")
    return sorted(ROOT / name for name in set(result.stdout.split("\0")) if (ROOT / name).is_file())


def relative(path):
    return path.relative_to(ROOT).as_posix()


def is_source(name):
    return not name.startswith("tests/") or name.startswith("tests/bench/testudo_bench/")


def shipped_modules(*folders):
    """Return name and syntax tree of each Python file outside the tests, or of those in folders."""
    for path in committed_files():
        name = relative(path)
        inside = name.startswith(folders) if folders else is_source(name)
        if path.suffix == ".py" and inside:
            yield name, parsed(path)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def functions(tree):
    """Return the functions of a module, of its classes, and those within others; expressions hold none."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef):
            found.append(node)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            left += inner if isinstance(inner, list) else ()  # of a lambda and of `a if b else c` it is an expression
    return found


def run_python(code, *words):
    """Run code in a fresh interpreter and return it with its output."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_import_contracts_hold():
    program = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [program, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr


BLOCKED_IMPORT = """
import importlib, pkgutil, sys
blocked = set(sys.argv[1].split(","))
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is not there on a robot", name=name)
sys.meta_path.insert(0, Blocker())
def fail(name):
    raise
for name in sys.argv[2:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), name + ".", onerror=fail):
        importlib.import_module(found.name)
print(len([name for name in sys.modules if name.startswith("testudo_")]), "modules")
"""


def test_robot_side_imports_without_the_training_side():
    result = run_python(BLOCKED_IMPORT, ",".join(TRAINING_SIDE), "testudo_hardware", "testudo_deploy")
    assert result.returncode == 0, result.stderr


def test_no_shipped_file_is_long():
    long = {
        relative(path): count
        for path in committed_files()
        if path.suffix == ".py"
        and is_source(relative(path))
        and (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not long, f"more than {MAX_FILE_LINES} lines: {long}"


def test_no_shipped_function_is_long():
    long = [
        f"{name}:{node.lineno} {node.name}: {lines} lines"
        for name, tree in shipped_modules()
        for node in functions(tree)
        if (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long, f"more than {MAX_FUNCTION_LINES} lines: {long}"


def test_no_signature_is_long():
    motion = "hardware/testudo_hardware/motion"  # equations of motion list their parameters
    long = [
        f"{name}:{node.lineno} {node.name}: {count} parameters"
        for name, tree in shipped_modules()
        if not name.startswith(motion)
        for node in functions(tree)
        if (count := len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)) > MAX_PARAMETERS
    ]
    assert not long, f"more than {MAX_PARAMETERS} parameters: {long}"


@pytest.mark.parametrize("page", ["architecture", "results", "margins", "scenario_pages"])
def test_a_generated_page_equals_its_source_and_no_rooms_import_each_other_in_a_circle(page):
    pytest.importorskip("grimp")
    tool = [sys.executable, ROOT / "tools" / f"{page}.py", "--check"]
    result = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def test_few_modules_are_loose_at_the_root_of_a_package():
    loose = {}
    for name, _ in shipped_modules():
        *folders, file = name.split("/")
        if folders and folders[-1].startswith("testudo_") and file != "__init__.py":
            loose.setdefault("/".join(folders), []).append(file)
    assert not {folder: files for folder, files in loose.items() if len(files) > MAX_LOOSE_MODULES}


def test_the_architecture_page_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:hardware|deploy|sim|policies|ros_ws)/[\w/]+\.py)`", text)
    assert len(named) >= 20
    assert not [path for path in named if not (ROOT / path).is_file()]


def public_definitions(nodes, prefix=""):
    """Yield name and node of the public functions, classes and methods of a body."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("folder", ["hardware/", "deploy/"])
def test_public_names_of_the_robot_side_are_documented(folder):
    bare = [
        f"{module}:{node.lineno} {name}"
        for module, tree in shipped_modules(folder)
        for name, node in public_definitions(tree.body)
        if ast.get_docstring(node) is None
    ]
    assert not bare, f"without a docstring: {bare}"


def test_no_committed_file_holds_a_download_address_or_a_machine_path():
    found = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{relative(path)}: {match.group()}" for match in FORBIDDEN_TEXT.finditer(text)]
    assert not found, found


@pytest.mark.parametrize(
    "text",
    [
        "see https://files.python" + "hosted.org/x",
        "http" + "s://example.org/robot.zip",
        "--index" + "-url=x",
        "in /wo" + "rk/main",
    ],
)
def test_the_address_check_sees_addresses(text):
    assert FORBIDDEN_TEXT.search(text)


def test_lock_holds_exact_versions_only():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)?", line), line


def test_only_the_clock_of_a_node_reads_the_time():
    """Ages and watchdogs go by one injected clock; else lock-step would not be deterministic."""
    nodes = Path("ros_ws/src/testudo_nodes/testudo_nodes")
    at = {file.name: file for file in nodes.rglob("*.py")}
    # these measure real time, or wait for processes and nodes, which start and end in real time
    real = {
        "clock.py",
        "lock_step_server.py",
        "node_runner.py",
        "plant_node.py",
        "guard_node.py",
        "markers_node.py",
        "status_listener.py",
        "status.py",
        "fleet_probe.py",
        "quick_stop.py",
        "stop_port.py",
        "operator_requests.py",
        "page.py",
        "page_desk.py",
        "page_view.py",
        "goal.py",
        "policy.py",
        "navigate.py",
        "lost.py",
        "teleop.py",
        "driver_node.py",
    }
    reads = {file.name for file in nodes.rglob("*.py") if re.search(r"\btime\.(monotonic|time)", file.read_text())}
    assert reads <= real
    for name in ("plant_node.py", "guard_node.py"):
        lines = [line for line in at[name].read_text().splitlines() if "time.monotonic" in line]
        assert all("real_s" in line or "begun_s" in line for line in lines), lines


def test_every_test_of_the_full_matrix_exists():
    text = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    names = {pattern.split("[")[0] for pattern in left_out()}
    assert not [name for name in names if "::" not in name and f"def {name}(" not in text]
    placed = [*few_cases(), *(name.split("::") for name in names if "::" in name)]
    assert len(placed) >= 20
    assert not [(file, name) for file, name in placed if f"def {name}(" not in (ROOT / "tests" / file).read_text()]


def test_what_keeps_a_claim_of_a_left_out_test_is_not_left_out_itself():
    text = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    whole = {pattern.rpartition("::")[2] for pattern in left_out() if "[" not in pattern}
    keepers = [name for line in kept_by() for name in re.findall(r"(?<![/\w])test_\w+(?!\w|\.py|/)", line)]
    assert len(keepers) >= 100
    assert not [name for name in keepers if name in whole or f"def {name}(" not in text]


def test_the_rooms_that_the_makefile_names_exist():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"tests/[\w/]+(?:\.py)?(?=[\s)])", text)
    deploy = re.search(r"addprefix tests/deploy/,([\w ]+)\)", text)
    rooms = [*named, *(f"tests/deploy/{room}" for room in deploy[1].split())]
    assert len(rooms) >= 12
    assert not [room for room in rooms if not (ROOT / room).exists()]
