"""The answers of an HTTP service about clients, in the format of EMQX's services, and how long they are cached."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from trunkline.plugins.shipped.http_client import HttpFailure
from trunkline.plugins.shipped.login import text_attributes, unambiguous

if TYPE_CHECKING:
    from trunkline.plugins.shipped.http_client import HttpAnswer
    from trunkline.plugins.shipped.http_template import Prepared

#: Statuses of the 400s that are about the service and not about the client.
_BUSY: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Verdict:
    result: Literal["allow", "deny", "ignore"]
    superuser: bool = False
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    #: Access rules as they came; None without any.
    acl: object = None
    #: Seconds since the epoch; None where the login does not end.
    expires_at: float | None = None


def read_verdict(answer: HttpAnswer) -> Verdict:
    """Raises HttpFailure if the answer cannot be used."""
    if answer.status == 204 or (answer.status == 200 and not answer.body):
        return Verdict("allow")
    if answer.status != 200:
        if 400 <= answer.status < 500 and answer.status not in _BUSY:
            return Verdict("deny")
        raise HttpFailure(f"it answers with status {answer.status}")
    if answer.content_type != "application/json":
        raise HttpFailure(f"it answers with {answer.content_type[:60]!r}, not with application/json")
    try:
        content = json.loads(answer.body, object_pairs_hook=unambiguous)
    except (ValueError, RecursionError):
        raise HttpFailure("it answers with invalid JSON, or with a key twice") from None
    if not isinstance(content, dict):
        raise HttpFailure("it answers with JSON that is not an object")
    table = cast("dict[str, Any]", content)
    result, expires_at = table.get("result"), table.get("expire_at")
    if result not in ("allow", "deny", "ignore"):
        raise HttpFailure('its "result" is none of allow, deny and ignore')
    if expires_at is not None and type(expires_at) not in (int, float):
        raise HttpFailure('its "expire_at" is not a number')
    return Verdict(
        result,
        table.get("is_superuser") is True,
        text_attributes(table.get("client_attrs")),
        table.get("acl"),
        expires_at,
    )


class Remembered:
    """Cached verdicts by request, each for a limited time. A request is stored as a keyed hash, because it may hold a
    password."""

    __slots__ = ("_entries", "_key", "_max_entries", "_time_to_live")

    def __init__(self, time_to_live: float, max_entries: int) -> None:
        self._time_to_live = time_to_live
        self._max_entries = max_entries
        self._key = secrets.token_bytes(32)
        #: With the time of expiry; the oldest first.
        self._entries: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, request: Prepared, now: float) -> tuple[Verdict, float] | None:
        """The verdict, and the time at which it expires."""
        entry = self._entries.get(self._digest(request))
        return entry if entry is not None and now < entry[1] else None

    def keep(self, request: Prepared, verdict: Verdict, now: float) -> float:
        """Returns the time at which it expires."""
        until = now + self._time_to_live
        if self._max_entries and self._time_to_live:
            digest = self._digest(request)
            self._entries.pop(digest, None)
            self._entries[digest] = verdict, until
            while len(self._entries) > self._max_entries or next(iter(self._entries.values()))[1] <= now:
                self._entries.popitem(last=False)
        return until

    def _digest(self, request: Prepared) -> bytes:
        text = repr((request.method, request.url, request.content)).encode()
        return hmac.digest(self._key, text, hashlib.sha256)
