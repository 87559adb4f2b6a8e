"""What a request has, and how what it says is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trunkline.broker.nats.jetstream.json_objects import read_object
from trunkline.broker.nats.jetstream.refusals import BAD_REQUEST, LEVEL_TOO_HIGH, NOT_EMPTY, bad_json
from trunkline.broker.nats.levels import is_too_high
from trunkline.nats.jetstream.fields import Moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.nats.jetstream.asker import Asker

T = TypeVar("T")

_MOMENT: Final = Moment()

#: Names, and whole descriptions, in one answer.
NAMES: Final = 1024
DESCRIPTIONS: Final = 256


@dataclass(frozen=True)
class ApiRequest:
    asker: Asker
    #: Names in the subject; empty where there are none.
    stream: str
    consumer: str
    rest: str
    payload: bytes
    #: Of headers.
    block: bytes = b""

    @cached_property
    def body(self) -> dict[str, Any]:
        """The object of JSON that the payload is; empty if there is none, or `null` in its place.

        Raises:
            ApiError: it is something else.
        """
        if self.payload.strip() in (b"", b"null"):
            return {}
        try:
            return read_object(self.payload)
        except ValueError as error:
            raise bad_json(str(error)) from None

    def check_level(self) -> None:
        """
        Raises:
            ApiError: it needs a higher level of the API.
        """
        if is_too_high(self.block):
            raise LEVEL_TOO_HIGH()

    def empty(self) -> None:
        """
        Raises:
            ApiError: the request has a payload that says something.
        """
        text = self.payload.strip()
        if text and text != b"{}":
            raise NOT_EMPTY()

    def needed(self) -> None:
        """
        Raises:
            ApiError: the request has no payload.
        """
        if not self.payload.strip():
            raise BAD_REQUEST()

    def value(self, name: str, kind: type[T], default: T) -> T:
        """
        Raises:
            ApiError: it is of another type.
        """
        value = self.body.get(name)
        if value is None:
            return default
        if type(value) is not kind:
            raise bad_json(f"{name}: {value!r:.40}")
        return value

    def natural(self, name: str) -> int:
        """
        Raises:
            ApiError: it is negative, or no whole number.
        """
        value = self.value(name, int, 0)
        if value < 0:
            raise bad_json(f"{name}: {value}")
        return value

    def moment(self, name: str) -> float | None:
        """Seconds since the epoch.

        Raises:
            ApiError: it is no time.
        """
        try:
            text = self.value(name, str, "")
            return _MOMENT.read(text) if text else None
        except (ValueError, OverflowError):
            raise bad_json(f"{name}: no time") from None

    def page(self, found: Sequence[T], limit: int) -> tuple[Sequence[T], dict[str, int]]:
        """Those of what was found that the answer has, and what it says about the others."""
        offset = min(max(self.value("offset", int, 0), 0), len(found))
        return found[offset : offset + limit], {"total": len(found), "offset": offset, "limit": limit}
