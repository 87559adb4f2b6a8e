"""The headers of a message: a block of lines as in HTTP, whose first line may hold a status.

Names keep their case, and are compared with it, as servers do. A name may have several values, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from trunkline.nats.errors import BadHeaders

_VERSION: Final = b"NATS/1.0"
_END: Final = b"\r\n"
#: A visible character of ASCII, and no colon.
_NAME: Final = re.compile(r"[!-9;-~]+")
#: A status of three digits behind the version, and what it means.
_STATUS: Final = re.compile(rb" ?([0-9]{3})(?:[ \t]+(.*))?", re.DOTALL)


class Status(NamedTuple):
    """What a server says in place of a message."""

    code: int
    text: str


class Headers(Mapping[str, str]):
    """As a mapping it has the first value of each name."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str | Sequence[str]] | Iterable[tuple[str, str]] = ()) -> None:
        """
        Raises:
            BadHeaders: a name or a value cannot stand in a line.
        """
        self._values: dict[str, list[str]] = {}
        if isinstance(values, Mapping):
            named = cast("Mapping[str, str | Sequence[str]]", values)
            values = [
                (name, each) for name, some in named.items() for each in ([some] if isinstance(some, str) else some)
            ]
        for name, value in values:
            self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """One more value of this name.

        Raises:
            BadHeaders: it cannot stand in a line.
        """
        if not _NAME.fullmatch(name):
            raise BadHeaders(f"{name!r}: the name of a header is visible ASCII without a colon")
        if "\r" in value or "\n" in value:
            raise BadHeaders(f"{name}: the value of a header has no line break")
        self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        """All values of this name."""
        return list(self._values.get(name, ()))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each value with its name."""
        for name, values in self._values.items():
            for value in values:
                yield name, value

    def __getitem__(self, name: str) -> str:
        return self._values[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs())!r})"


NO_HEADERS: Final = Headers()


def encode_headers(headers: Headers, status: Status | None = None) -> bytes:
    """The block, with the empty line behind it.

    Raises:
        BadHeaders: a value is no text.
    """
    try:
        lines = [f"{name}: {value}".encode("utf-8", "surrogateescape") for name, value in headers.pairs()]
    except UnicodeEncodeError as error:
        raise BadHeaders(f"half a character in {error.object[:80]!r}") from None
    first = _VERSION if status is None else b"%s %d %s" % (_VERSION, status.code, status.text.encode())
    return b"\r\n".join((first.rstrip(), *lines, _END))


def decode_headers(block: bytes, *, skip_bad_lines: bool = False) -> tuple[Status | None, Headers]:
    """What a block says.

    Raises:
        BadHeaders: it is none.
    """
    if not block.startswith(_VERSION) or not block.endswith(_END * 2):
        raise BadHeaders(f"{block[:40]!r} is no block of headers")
    first, *lines = block[len(_VERSION) : -len(_END)].split(_END)[:-1]
    status = None
    if first.strip():
        found = _STATUS.fullmatch(first.rstrip())
        if found is None:
            raise BadHeaders(f"{first[:40]!r} is no status")
        status = Status(int(found[1]), _text(found[2] or b"").strip())
    headers = Headers()
    for line in lines:
        try:
            _add_line(headers, line)
        except BadHeaders:
            if not skip_bad_lines:
                raise
    return status, headers


def _add_line(headers: Headers, line: bytes) -> None:
    name, colon, value = line.partition(b":")
    if not colon:
        raise BadHeaders(f"{line[:40]!r}: a header has a colon")
    headers.add(_text(name), _text(value).strip(" \t"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
