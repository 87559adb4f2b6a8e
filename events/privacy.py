"""Personal data in events: left out, or replaced by a keyed hash, so that rows of one client can still be brought
together."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Hashes remembered, and characters of the texts that they stand for: computing one takes a microsecond.
_REMEMBERED: Final = 10_000
_LONGEST: Final = 256
#: Columns that no text quotes.
_NO_TEXTS: Final = {"payload", "peer_port"}
#: Characters of a hash.
LENGTH: Final = 32


class Privacy:
    """How the values of each column are hidden."""

    def __init__(self, hash: Iterable[str] = (), leave_out: Iterable[str] = (), key: bytes = b"") -> None:
        """`key` is a secret of at most 64 bytes: without it, anyone who knows all names could hash them all."""
        self._hiding: dict[str, Callable[[Any], Any]] = dict.fromkeys(hash, self._hash)
        self._hiding |= dict.fromkeys(leave_out, _nothing)
        #: Whether any text is hidden. Free text about a client, such as the reason of a disconnection, may quote it.
        self.hides_texts: Final = not self._hiding.keys() <= _NO_TEXTS
        self._key = key
        self._known: dict[str, str] = {}

    def of(self, column: str) -> Callable[[Any], Any] | None:
        """The function that hides a value of this column; None if values are shown unchanged."""
        return self._hiding.get(column)

    def _hash(self, value: str | None) -> str | None:
        """The same text has the same hash in every column, so that `publisher` and `client_id` can still be joined."""
        if not value:
            return value
        known = self._known.get(value)
        if known is None:
            known = blake2b(value.encode("utf-8", "surrogatepass"), key=self._key, digest_size=LENGTH // 2).hexdigest()
            if len(value) <= _LONGEST:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[value] = known
        return known


def _nothing(value: object) -> None:
    return None
