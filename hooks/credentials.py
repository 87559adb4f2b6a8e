"""Credential files: one `name:…` a line. Empty lines and lines that begin with `#` are kept and not read. A name may
contain a colon, the fields after it never do. The functions take the file's text and return it; the caller reads and
writes the file.
"""

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")


class CredentialsError(Exception):
    """A credential file cannot be used. `problems` has all problems, one line each."""

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
            missing = "no ':' in the line" if ":" not in line else "no name"
            problem = f"{missing}; accepted: name:{'…:' * (fields - 1)}…"
            if fields > 1 and "$argon2id$" in line:
                problem = "the hash of a password, which belongs into a file of auth.password_file"
        elif name in entries:
            problem = f"{name!r} occurs twice"
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


def check_name(name: str) -> None:
    """Raises ValueError if the name is not allowed in such a file."""
    if not name or name.startswith("#") or not name.isprintable() or name != name.strip():
        raise ValueError(f"{name!r}: a name must be printable, without surrounding spaces, and must not begin with #")


def replace_entry(text: str, name: str, value: str | None, fields: int) -> str:
    """The text with a new value for the name, in its old place or at the end; for None, without the name.

    Raises:
        ValueError: the name is not allowed in such a file.
        LookupError: the name to delete does not exist.
    """
    check_name(name)
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
            raise LookupError(f"{name!r} is not in the file")
        kept.append(f"{name}:{value}")
    return "".join(line + "\n" for line in kept)


def _split(line: str, fields: int) -> tuple[str, str] | None:
    line = line.removesuffix("\r")
    if not line.strip() or line.startswith("#"):
        return None
    name, *values = line.rsplit(":", fields)
    # too few colons: nothing is left for the name
    return (name, ":".join(values)) if len(values) == fields else ("", "")
