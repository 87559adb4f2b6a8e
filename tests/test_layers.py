"""The order of the layers: one in the import contract, in CONTRIBUTING and in the design page; and no circles in it."""

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.test_house import PACKAGES, ROOT

CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]
#: Says in the docstring of a package which of its modules know each other.
CLUSTER = re.compile(r"Modules that know each other: ([a-z_, ]+)\.")


def layers(container: str) -> dict[str, int]:
    """Each module below the container to its layer; 0 is the highest."""
    (contract,) = (each for each in CONTRACTS if each.get("containers") == [container])
    assert contract["exhaustive"]
    return {
        module.strip(" ()"): rank
        for rank, layer in enumerate(contract["layers"])
        for module in re.split(r"[|:]", layer)
    }


def rank(name: str) -> tuple[int, int]:
    """Of a package, or of a module of the broker."""
    package, _, module = name.partition(".")
    return layers("trunkline")[package], layers(f"trunkline.{package}")[module] if module else 0


def test_contributing_has_the_order_of_the_contract() -> None:
    table = re.findall(r"^\| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    packages = [name for name in table if name not in ("tests", "bench", "fuzz")]
    assert sorted(packages) == sorted(PACKAGES)
    assert packages == sorted(packages, key=rank, reverse=True)


def test_the_diagram_has_the_order_of_the_contract() -> None:
    _, diagram, _ = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").split("```", 2)
    rows = [re.findall(r"(?:^|(?<= ))[a-z]+(?:\.[a-z]+)?(?= |$)", line[:19]) for line in diagram.splitlines()]
    assert {name.partition(".")[0] for row in rows for name in row} == set(PACKAGES)
    ranks = [{rank(name) for name in row} for row in rows if row]
    assert all(min(lower) >= max(upper) for upper, lower in pairwise(ranks))


def imports(file: Path, known: set[str]) -> Iterator[str]:
    """Everything that a module imports from the project: at its top, in a function, or for type checkers only."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)


def graph() -> dict[str, set[str]]:
    files: dict[str, Path] = {}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            files[".".join(("trunkline", *parts[: -1 if parts[-1] == "__init__" else None]))] = file
    return {module: set(imports(file, set(files))) & set(files) - {module} for module, file in files.items()}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Modules that reach each other: what is left when all that lead nowhere are taken out, again and again."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        todo, seen = [module], set[str]()
        while todo:
            for other in graph[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        reached[module] = seen
    found = [{other for other in reached[module] if module in reached[other]} for module in graph]
    return [circle for number, circle in enumerate(found) if circle and circle not in found[:number]]


def clusters() -> Iterator[set[str]]:
    """What packages say of themselves."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("__init__.py"):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            name = ".".join(("trunkline", *file.parent.relative_to(ROOT).parts))
            for said in CLUSTER.findall(" ".join(text.split())):
                yield {f"{name}.{module}" for module in said.split(", ")}


def test_no_imports_in_a_circle() -> None:
    """But for what a package says of itself, which is neither more nor less. Imports for type checkers count."""
    assert sorted(map(sorted, clusters())) == sorted(map(sorted, circles(graph())))


#: Modules of a session that know more than four of their neighbours, and how many. The numbers shrink.
MANY_NEIGHBOURS = {
    # hands each message of the mailbox to the part that it is for
    "actor": 15,
    # is what all parts share
    "context": 5,
    # starts and wakes sessions, and tells their actors what others want of them
    "directory": 8,
    # gathers what is stored of each kind
    "durable": 5,
    # ends and begins each part with its connection, in one order
    "life": 11,
    # asks each kind of source
    "outbound": 7,
    # makes actors of what is stored, or leaves it dormant
    "recovery": 6,
    # reads back what is stored of each kind
    "restoring": 5,
    # goes from the packet over the decision and the routes to the answer
    "subscribing": 6,
}


def test_a_module_of_a_session_knows_few_of_its_neighbours() -> None:
    """But for those that are named, which know no fewer. Imports for type checkers count."""
    session = "trunkline.broker.session."
    known = {
        module.removeprefix(session): sum(other.startswith(session) for other in others)
        for module, others in graph().items()
        if module.startswith(session)
    }
    assert {module: number for module, number in known.items() if number > 4} == MANY_NEIGHBOURS
