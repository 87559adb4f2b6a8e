"""The repository as a whole: what a newcomer relies on, and what no other check sees."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import trunkline

ROOT = Path(__file__).parents[1]
#: Modules whose tests are not called after them: where those are, and why.
TESTED_IN: dict[str, tuple[str, str]] = {
    "actors/bonds.py": ("actors/test_ref.py", "sets of an actor's monitors and tasks, which references fill and empty"),
    "analytics/report/reading.py": (
        "analytics/report/test_collecting.py",
        "reads rows of Spark, as all that collects them does",
    ),
    "broker/net/protocol.py": (
        "broker/net/test_acceptor.py",
        "what a protocol is, tested by one that a listener serves",
    ),
    "broker/net/tls_listeners.py": (
        "broker/net/test_tls.py",
        "reads certificates for listeners, which a client of TLS sees",
    ),
    "broker/session/acknowledged.py": (
        "broker/session/test_sending.py",
        "half of a conversation, whose other half is what was sent",
    ),
    "broker/session/answering.py": (
        "broker/session/test_inbound.py",
        "answers packets, and is told by the packets that came",
    ),
    "broker/session/context.py": (
        "broker/session/test_lifecycle.py",
        "what the parts of a session share; its states are the life of a session",
    ),
    "broker/session/state.py": (
        "broker/session/test_export.py",
        "a session as a value, which is whole if its export is",
    ),
    "client/client_thread.py": (
        "client/test_sync.py",
        "the classes of the client for threads, under their public names",
    ),
    "client/requests.py": ("client/test_outgoing.py", "what the outgoing half sends; a request alone does nothing"),
    "events/segment.py": ("events/test_arrow_segment.py", "tuples for two file formats, each of which tests them"),
    "management/client_commands/output.py": (
        "management/client_commands/test_sub.py",
        "writes to a real descriptor, so a process prints it",
    ),
    "mqtt/packets.py": ("mqtt/test_round_trip.py", "values without behaviour, each of which goes through the codec"),
}
PACKAGES = [
    "actors",
    "analytics",
    "broker",
    "client",
    "config",
    "events",
    "hooks",
    "management",
    "mqtt",
    "nats",
    "plugins",
    "router",
    "store",
    "streams",
    "testing",
]


def tracked() -> list[Path]:
    """Every text file that is in the repository, or that would go into it."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    files = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [file for file in files if file.is_file() and not file.is_symlink()]


def modules() -> list[Path]:
    return [file.relative_to(ROOT) for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]


def test_no_path_of_somebodys_machine() -> None:
    pattern = re.compile(r"/(?:home|Users|root|work)/\w|[A-Z]:\\\\?Users")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in tracked()
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        if pattern.search(line) and file != Path(__file__)
    ]
    assert not found


def test_every_folder_is_linked_as_a_package() -> None:
    for package in PACKAGES:
        link = ROOT / "src" / "trunkline" / package
        assert link.is_symlink(), package
        assert not link.readlink().is_absolute(), package
        assert link.resolve() == ROOT / package


def test_every_package_says_what_it_is() -> None:
    for module in modules():
        if module.name == "__init__.py":
            assert re.match(r'"""\S', (ROOT / module).read_text(encoding="utf-8")), module


def does_something(module: Path) -> bool:
    """Has a function with more in it than what a protocol says."""
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )


def test_tests_mirror_the_tree() -> None:
    """A module a/b.py has tests/a/test_b.py. What is tested together with something else is named in `TESTED_IN`;
    what does nothing needs no tests."""
    missing = [
        module.as_posix()
        for module in modules()
        if module.name not in ("__init__.py", "__main__.py")
        and not (ROOT / "tests" / module.parent / f"test_{module.name}").exists()
        and module.as_posix() not in TESTED_IN
        and does_something(module)
    ]
    assert not missing
    assert len(TESTED_IN) <= 15
    for module_name, (test, reason) in TESTED_IN.items():
        assert (ROOT / module_name).exists(), module_name
        assert (ROOT / "tests" / test).exists(), test
        own = Path(module_name).parent / f"test_{Path(module_name).name}"
        assert not (ROOT / "tests" / own).exists(), f"{module_name} needs no mention"
        assert len(reason.split()) >= 5, f"{module_name}: why are its tests in {test}?"


#: Lines of a module and of a function, methods of a class.
MAX_LINES, MAX_FUNCTION, MAX_METHODS = 450, 60, 30
#: What is larger, and why it is better whole. The list shrinks.
LARGER = {
    "actors/ref.py: Ref": "what others may do with an actor: one line each",
    "analytics/report/sections/messages.py: topics": "a table for each of its parts",
    "broker/connection/handshake.py: Handshake._open_session": "the order of the specification's checks is what it is",
    "broker/session/actor.py: SessionActor": "a handler for each message of its mailbox",
    "broker/session/inbound.py: Inbound.publish": "the hot path: calls would cost more than they show",
    "broker/session/life.py: SessionLife": "a connection comes and goes by the same state",
    "mqtt/gather.py: _publishes": "the hot path: calls would cost more than they show",
    "plugins/context.py: Context": "what plugins may do: one line each",
    "store/sqlite.py: SqliteEngine": "one file, one connection",
    "streams/log.py: StreamLog": "sequences, limits and blocks change together",
}


def larger(module: Path) -> Iterator[str]:
    text = (ROOT / module).read_text(encoding="utf-8")
    if len(text.splitlines()) > MAX_LINES:
        yield module.as_posix()
    todo: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    while todo:
        prefix, parent = todo.pop()
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{prefix}{node.name}"
            todo.append((f"{name}.", node))
            if isinstance(node, ast.ClassDef):
                functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                is_larger = len(functions) > MAX_METHODS
            else:
                is_larger = (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION
            if is_larger:
                yield f"{module.as_posix()}: {name}"


def test_modules_functions_and_classes_are_small() -> None:
    """But for those that are named, which are no fewer."""
    assert sorted(name for module in modules() for name in larger(module)) == sorted(LARGER)


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == trunkline.__version__
    assert version("trunkline") == trunkline.__version__


def test_change_notes_are_named_right() -> None:
    for note in (ROOT / "changes").iterdir():
        assert re.fullmatch(r"[a-z0-9-]+\.(feature|fix|perf|doc)\.md", note.name), note.name
        assert note.read_text(encoding="utf-8").strip(), note.name


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_rows_of_tables_are_lines() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert [line for line in text.splitlines() if line.startswith("|") and not line.endswith("|")] == [], page.name


def pages(navigation: list[dict[str, Any]]) -> list[str]:
    """The pages of the site's navigation, in its order."""
    found = list[str]()
    for entry in navigation:
        for value in entry.values():
            found += [value] if isinstance(value, str) else pages(value)
    return found


def test_the_site_and_its_front_page_have_every_document_in_one_order() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    listed = pages(site["nav"])
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert ["index.md", *re.findall(r"^- \[.*?\]\((\S+\.md)\)", index, re.MULTILINE)] == listed


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_importing_the_testing_module_brings_nothing_heavy() -> None:
    code = "import sys, trunkline.testing; print(*sys.modules)"
    # measuring coverage would bring modules of its own
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    assert "trunkline.testing" in loaded
    heavy = {"click", "rich", "argon2", "pytest", "sqlite3", "asyncio", "difflib", "logging.handlers"}
    # what lists and what records, for tests that ask
    heavy |= {"trunkline.broker.views", "trunkline.management.cli", "trunkline.management.journal_file"}
    assert not heavy & set(loaded)
    assert len([name for name in loaded if name.startswith("trunkline")]) <= 250


#: Names that several classes have: what a hook of either layer, a plugin's settings or a job of Spark calls so in its
#: own world. The list shrinks.
SHARED_NAMES = """
Answer Budget Client Column Connection ConnectionEvent Due Ending Entry Faults Figures Finding Header Hold Kind Lives
OptionError Options Piece Plugins Problem Processor Progress Published Reader Received Recorder Rule Run Running
Section Seen Selection Settings Span State Stop Target Window
"""


#: Clients for code that does not await have the names of those on trio.
SAME_NAMES = (
    "client/sync.py",
    "client/client_thread.py",
    *(
        f"nats/sync/{name}.py"
        for name in (
            *("client", "consuming", "direct", "jetstream", "keyvalue", "messages", "objects", "publishing"),
            *("services", "watching"),
        )
    ),
)


def test_a_class_name_has_one_meaning() -> None:
    """In the whole project, but that NATS has the words of MQTT for what is like it. A name with an underscore is
    private to its module."""
    found: dict[tuple[bool, str], list[str]] = {}
    for module in modules():
        if module.as_posix() in SAME_NAMES:
            continue
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault((module.parts[0] == "nats", node.name), []).append(module.as_posix())
    twice = {name: where for (_, name), where in found.items() if len(where) > 1 and name not in SHARED_NAMES.split()}
    assert not twice


def calls(path: Path, words: str) -> Iterator[tuple[str, ast.Call]]:
    """What a module calls, by its last name, if it has one of these words in it."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if re.search(words, text) else ():
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            yield name, node


def with_properties() -> list[Path]:
    return [path for path in sorted((ROOT / "tests").rglob("*.py")) if "from hypothesis" in path.read_text("utf-8")]


def test_examples_depend_on_no_clock_and_outlive_no_run() -> None:
    """What a busy machine makes fail fails there and then, and not in each run from then on: the profile is for all."""
    own = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in with_properties()
        if path != ROOT / "tests" / "conftest.py"
        for name, call in calls(path, "settings")
        if name in ("settings", "hypothesis_settings")
        and {"deadline", "database", "suppress_health_check"} & {keyword.arg for keyword in call.keywords}
    ]
    assert own == []


def test_examples_that_are_made_longer_are_bounded_before() -> None:
    """Hypothesis bounds what it draws; what a `map` makes of that, only the strategy bounds: in bytes."""
    unbounded = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in with_properties()
        for name, call in calls(path, r"\bmap\b")
        if name == "map" and any(isinstance(node, ast.Mult) for node in ast.walk(call.args[0]))
        for inner in ast.walk(call.func)
        if isinstance(inner, ast.Call)
        and ast.unparse(inner.func) in ("st.text", "st.binary", "st.lists", "st.dictionaries")
        and not {"max_size"} & {keyword.arg for keyword in inner.keywords}
    ]
    assert unbounded == []


def test_nothing_is_skipped_without_a_reason() -> None:
    """A package that is missing is a reason if those who develop have it: then CI has it, too."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").lower()
    through = {"grpc": "pyspark[connect]", "aiohttp": "nats-py[aiohttp]"}
    silent = list[str]()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name, call in calls(path, "skip"):
            words = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "reason")]
            if name == "importorskip":
                module = ast.literal_eval(call.args[0]).partition(".")[0]
                is_known = module in sys.stdlib_module_names or find_spec(module) or f'"{module}' in project
                has_reason = is_known or (module in through and through[module] in project)
            elif name in ("skip", "skipif"):
                has_reason = len(words) > (name == "skipif") and ast.unparse(words[-1]) not in ("''", "None")
            else:
                continue
            if not has_reason:
                silent.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert silent == []
