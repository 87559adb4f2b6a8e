"""Credential files: one `name:…` a line. Empty lines and lines that begin with `#` are kept and not read.

A name may hold a colon, what follows it never does. The functions take the file's text and return it; the caller
reads and writes the file.
"""

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")


class CredentialsError(Exception):
    """A credential file cannot be used. `problems` has all that is wrong with it, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def parse_entries(text: str, source: str, fields: int, read: Callable[[str], V]) -> dict[str, V]:
    """Names and values: the last `fields` fields of a line, read by `read`, which raises ValueError.

    `source` names the file in the problems.
    """
    entries = dict[str, V]()
    problems = list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        split = _split(line, fields)
        if split is None:
            continue
        name, value = split
        problem: str | None = None
        if not name:
            problem = f"no name; accepted: name:{'…:' * (fields - 1)}…"
        elif name in entries:
            problem = f"{name!r} stands here twice"
        else:
            try:
                entries[name] = read(value)
            except ValueError as error:
                problem = str(error)
        if problem is not None:
            problems.append(f"{source}:{number}: {problem}")
    if problems:
        raise CredentialsError(problems)
    return entries


def replace_entry(text: str, name: str, value: str | None, fields: int) -> str:
    """The text with another value for the name, in its old place or at the end; with None, without the name.

    Raises:
        ValueError: the name cannot stand in such a file.
        LookupError: there is no such name to delete.
    """
    if not name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError(f"{name!r}: a name is printable, with no space around it, and does not begin with #")
    lines = text.removesuffix("\n").split("\n") if text else []
    kept = list[str]()
    found = False
    for line in lines:
        split = _split(line, fields)
        if split is None or split[0] != name:
            kept.append(line)
        elif not found:
            found = True
            if value is not None:
                kept.append(f"{name}:{value}")
    if not found:
        if value is None:
            raise LookupError(f"{name!r} is not there")
        kept.append(f"{name}:{value}")
    return "".join(line + "\n" for line in kept)


def _split(line: str, fields: int) -> tuple[str, str] | None:
    line = line.removesuffix("\r")
    if not line.strip() or line.startswith("#"):
        return None
    name, *values = line.rsplit(":", fields)
    # too few colons: nothing is left for the name
    return (name, ":".join(values)) if len(values) == fields else ("", "")
