"""The one face of a broker: what it shows, and that nobody looks behind it."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.broker.room import room
from tests.test_house import PACKAGES, ROOT
from trunkline.broker.node.admin import Admin

PREFIX: Final = "trunkline.broker."
#: Folders of tests that look into a broker.
DO_LOOK: Final = ("broker", "attacks")
#: What others may import of a node.
FACE: Final = {f"{PREFIX}node.admin", f"{PREFIX}node.opening"}
#: Modules of the broker whose objects get out: values, and what has a public interface of its own.
SHOWN: Final = {f"{PREFIX}{name}" for name in ("alarms", "message_trace", "metrics", "views")}
#: Modules of the node whose objects get out: small ones, which hand out no more than that themselves.
HANDED_OUT: Final = {
    f"{PREFIX}node.{name}"
    for name in ("admin", "clients", "kept", "life", "listening", "messages", "reconfiguring", "routing")
}


#: A module and its tree. Nobody keeps these: all together they are millions of objects.
Parsed = Iterator[tuple[str, ast.Module]]


def parsed(paths: Iterable[Path], words: str) -> Parsed:
    """Those that have one of these words in them."""
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8")
        if re.search(words, text):
            yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def outside(words: str) -> Parsed:
    """All modules that are not the broker's own."""
    packages = [path for package in PACKAGES if package != "broker" for path in (ROOT / package).rglob("*.py")]
    return parsed([*packages, *(ROOT / "src" / "trunkline").glob("*.py")], words)


def others_tests(words: str) -> Parsed:
    """Those of the broker, and those that attack it, look into it."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.relative_to(ROOT).parts[1] not in DO_LOOK]
    return parsed(tests, words)


def imported(tree: ast.AST) -> dict[str, str]:
    """By the name that they have there: the modules that things come from, for type checkers too."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                is_module = node.module in (PREFIX[:-1], f"{PREFIX}node")
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}" if is_module else node.module
    return found


@pytest.mark.parametrize("modules", [outside, others_tests])
def test_nobody_imports_what_is_behind_the_face(modules: Callable[[str], Parsed]) -> None:
    looking = [
        f"{path}: {module}"
        for path, tree in modules(r"trunkline\.broker")
        for module in imported(tree).values()
        if module.startswith(f"{PREFIX}node") and module not in FACE
    ]
    assert looking == []


#: Tests elsewhere that look into a broker all the same, and why.
LOOKING: Final = {
    "tests/management/operations/test_actors.py": "has an actor of the node crash",
    "tests/plugins/test_manager.py": "has an actor of the node end",
    "tests/plugins/shipped/test_bans.py": "what a plugin has stored",
    "tests/plugins/shipped/test_delayed_publish.py": "what a plugin has stored",
    "tests/plugins/shipped/test_exclusive.py": "what a plugin has stored",
    "tests/plugins/shipped/test_reload.py": "what time it is for the broker",
}


def test_other_tests_see_what_everybody_sees() -> None:
    looking = {
        path
        for path, tree in others_tests(r"(here|self)\.node|tests\.broker\.inside")
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in ("here.node", "self.node"))
        or (isinstance(node, ast.ImportFrom) and node.module == "tests.broker.inside")
    }
    assert looking == set(LOOKING)


def named(tree: ast.AST) -> set[str]:
    """The names of arguments and variables that are the face of a broker, as annotations say."""
    return {
        ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign)
        if node.annotation is not None and ast.unparse(node.annotation).strip("'\"") == "Admin"
    }


async def test_nobody_uses_what_the_face_does_not_show() -> None:
    """A type checker sees more; here it is seen that nobody told it to look away."""
    async with room() as here:
        public = {name for name in dir(here.admin) if not name.startswith("_")}
    used = {
        f"{path}: {ast.unparse(node)}"
        for path, tree in outside(r"\bAdmin\b|\._(node|life)\b")
        for names in [named(tree)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.attr in ("_node", "_life") or (ast.unparse(node.value) in names and node.attr not in public))
        and ast.unparse(node.value) != "self"
    }
    assert used == set()


def shows(module: str, kind: str) -> Iterator[tuple[str, str]]:
    """The types of its attributes, of what its methods return and of what they call back with: each with its module."""
    tree = ast.parse((ROOT / Path(*module.split(".")[1:]).with_suffix(".py")).read_text(encoding="utf-8"))
    known = imported(tree)
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    for statement in body:
        if isinstance(statement, ast.AnnAssign):
            annotations = [statement.annotation]
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not statement.name.startswith("_"):
            given = [each.annotation for each in [*statement.args.args, *statement.args.kwonlyargs]]
            annotations = [each for each in given if each is not None and "Callable" in ast.unparse(each)]
            annotations += [statement.returns] if statement.returns is not None else []
        else:
            continue
        for annotation in annotations:
            for node in ast.walk(annotation):
                if isinstance(node, ast.Name) and node.id in known:
                    yield known[node.id], node.id


async def test_no_session_connection_or_store_gets_out() -> None:
    """Neither from the face nor from what it hands out, however deep."""
    async with room() as here:
        shown = {type(getattr(here.admin, name)) for name in dir(here.admin) if not name.startswith("_")}
    todo, seen = [(kind.__module__, kind.__name__) for kind in [Admin, *shown]], set[tuple[str, str]]()
    while todo:
        module, kind = todo.pop()
        if not module.startswith(PREFIX) or (module, kind) in seen:
            continue
        assert module in SHOWN | HANDED_OUT, f"{kind} of {module}"
        seen.add((module, kind))
        if module not in SHOWN:
            todo += shows(module, kind)
    assert len(seen) > 10


async def test_a_broker_as_a_whole() -> None:
    async with room() as here:
        began = here.admin.uptime
        assert not here.admin.has_store
        figures = await here.admin.figures()
        assert figures["connections.count"] == 0
        assert here.admin.rates(figures)["bytes.sent", "1min"] == 0
        await trio.lowlevel.checkpoint()
        assert here.admin.uptime >= began
        assert {row.name for row in here.admin.actors("node")} >= {"routes", "sessions", "connections", "plugins"}
        assert [row.name for row in here.admin.actors(name="rout")] == ["routes"]


async def test_its_turns() -> None:
    class Seen:
        owner = None

        def end_turn(self) -> None:
            order.append("end")

    order: list[str] = []
    async with room() as here:
        here.admin.call_at(trio.current_time(), lambda: order.append("soon"))
        here.admin.at_end_of_turn(Seen())
        client = await here.client("a")
        await client.ping()
        await here.admin.settled()
        assert order == ["soon", "end"]
