"""Changes a configuration file as a person would: comments, order and everything else stay as they are."""

import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from trunkline.config.files import read_text
from trunkline.config.reader import MAX_FILE
from trunkline.management.rewriting import rewrite

#: The parsed content of a file.
Content = dict[str, Any]


def change_section(
    file: Path,
    section: tuple[str, ...],
    values: Mapping[str, object],
    *,
    create: bool,
    check: Callable[[Content, Content], None],
) -> bool:
    """Set keys of a section, which is created if it is missing. Returns False if they have these values already; then
    nothing is written.

    `check` is called with the old and the new content before anything is written; it raises to refuse the change.

    Raises:
        ValueError: the file is not TOML, or its form does not allow such a section.
        OSError: the file cannot be read or written; there is none, unless it is to be created.
    """
    text = read_text(file, MAX_FILE) if file.exists() or not create else ""
    before = meaning(text)
    changed = with_keys(text, section, values)
    check(before, meaning(changed))
    if changed == text:
        return False
    rewrite(file, lambda text: with_keys(text, section, values), private=False)
    return True


def meaning(text: str) -> Content:
    """Raises ValueError if the text is not TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers may be too long, tables too deep
        raise ValueError(f"is not TOML: {error}") from None


def with_keys(text: str, section: tuple[str, ...], values: Mapping[str, object]) -> str:
    """The text with these keys set in the section.

    Raises:
        ValueError: as `change_section` does.
    """
    before = meaning(text)
    wanted = _set(deepcopy(before), section, values)
    if wanted == before:
        return text
    if not _has(before, section) and _means(appended := _appended(text, section, values), wanted):
        return appended
    try:
        edited = _edited(text, section, values)
    except TOMLKitError:
        edited = ""
    if not _means(edited, wanted):
        raise ValueError(f"[{'.'.join(section)}] cannot be changed automatically in this file's form; edit it by hand")
    return edited


def _set(content: Content, section: tuple[str, ...], values: Mapping[str, object]) -> Content:
    """Raises ValueError if there is something other than a table in place of the section."""
    table = content
    for depth, name in enumerate(section, 1):
        inner: object = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{'.'.join(section[:depth])} is not a table")  # noqa: TRY004
        table = cast("Content", inner)
    table.update(values)
    return content


def _means(text: str, wanted: Content) -> bool:
    try:
        return meaning(text) == wanted
    except ValueError:
        return False


def _appended(text: str, section: tuple[str, ...], values: Mapping[str, object]) -> str:
    """A new section comes last, where it does not separate a comment from its subject."""
    table = tomlkit.document()
    for key, value in values.items():
        table[key] = _item(value)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}[{'.'.join(section)}]\n{tomlkit.dumps(table)}"


def _has(content: Content, section: tuple[str, ...]) -> bool:
    table: Any = content
    for name in section:
        if name not in table:
            return False
        table = table[name]
    return True


def _edited(text: str, section: tuple[str, ...], values: Mapping[str, object]) -> str:
    document = tomlkit.parse(text)
    table = cast("MutableMapping[str, Any]", document)
    for name in section:
        if name not in table:
            table[name] = tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table()
        table = table[name]
    # comments at the end of a section are mostly about the next one, so new keys go before them
    body = table.value.body if isinstance(table, Table) else []
    about_next = [body.pop() for _ in range(len(body)) if body[-1][0] is None]
    for key, value in values.items():
        if key not in table or table[key] != value:
            table[key] = _item(value)
    body.extend(reversed(about_next))
    return tomlkit.dumps(document)


def _item(value: object) -> object:
    """Tables that are values stay on their key's line."""
    if not isinstance(value, dict):
        return value
    table = tomlkit.inline_table()
    for key, inner in cast("Content", value).items():
        table[key] = _item(inner)
    return table
