"""Requests made from a template: `${clientid}` and other placeholders may be in the URL and in the body.

Clients choose the values, so each stays a single value: percent-encoded in a path or a query, a JSON string, a form
field. They are not allowed in the host name. With a value that would change the path (`..`, or an empty one) no request
is made.

They are written `${…}` and not `%c` as in topics, because `%c3` means a byte in a URL.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from pydantic import model_validator

from trunkline.config.units import Text
from trunkline.hooks.client import ClientInfo
from trunkline.plugins import Table, setting
from trunkline.plugins.shipped.http_client import Url

#: The types of a placeholder's value.
Value: TypeAlias = str | int | bool | None

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
#: Placeholders that every client has.
CLIENT_WORDS: Final = ("clientid", "username", "peerhost", "peerport", "proto_ver", "keepalive", "listener", "node")


class Unfit(Exception):
    """A client's value cannot be put into the request."""


@dataclass(frozen=True, slots=True)
class Prepared:
    method: str
    url: str
    content: bytes | None
    content_type: str


class RequestTemplate(Table):
    """A request with placeholders."""

    url: Url = setting(
        "", "URL to ask. Path and query may contain `${clientid}` and the like. Empty: no request is made."
    )
    method: Literal["get", "post"] = setting("post", "With `get` the entries of `body` go into the query.")
    body_format: Literal["json", "form"] = setting("json", "How the body is written.")
    body: Mapping[Text, Text] = setting({}, "The body's entries.")

    @model_validator(mode="after")
    def _placeholders(self) -> Self:
        if "${" in urlsplit(self.url).netloc:
            raise ValueError("the host name cannot depend on the client")
        known = self.words()
        for text in (self.url, *self.body.values()):
            for name in _PLACEHOLDER.findall(text):
                if name not in known:
                    raise ValueError(f"${{{name}}} is unknown; there are {', '.join(f'${{{word}}}' for word in known)}")
        return self

    @classmethod
    def words(cls) -> tuple[str, ...]:
        """The names of all placeholders."""
        return CLIENT_WORDS

    def fill(self, values: Mapping[str, Value]) -> Prepared:
        """Raises Unfit if a value would change the URL's path."""
        path, mark, query = self.url.partition("?")
        path = "/".join(_segment(segment, values) for segment in path.split("/"))
        query = _PLACEHOLDER.sub(lambda found: quote(_text(values[found[1]]), safe=""), query)
        entries = {name: _whole(text, values) for name, text in self.body.items()}
        if self.method == "get":
            more = urlencode({name: _text(value) for name, value in entries.items()})
            query = "&".join(filter(None, (query, more)))
            mark = "?" if query else ""
            return Prepared("GET", path + mark + query, None, "")
        if self.body_format == "form":
            content = urlencode({name: _text(value) for name, value in entries.items()}).encode()
            return Prepared("POST", path + mark + query, content, "application/x-www-form-urlencoded")
        content = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
        return Prepared("POST", path + mark + query, content, "application/json")


def client_values(client: ClientInfo) -> dict[str, Value]:
    host, port = client.peer or (None, None)
    return {
        "clientid": client.client_id,
        "username": client.username,
        "peerhost": host,
        "peerport": port,
        "proto_ver": int(client.version),
        "keepalive": client.keep_alive,
        "listener": client.listener,
        "node": client.node,
    }


def _segment(segment: str, values: Mapping[str, Value]) -> str:
    """One part of a path. The client's values do not change which part it is."""
    names = _PLACEHOLDER.findall(segment)
    if not names:
        return segment
    if not all(_text(values[name]) for name in names):
        raise Unfit("a URL's path cannot contain an empty value")
    filled = _PLACEHOLDER.sub(lambda found: quote(_text(values[found[1]]), safe=""), segment)
    if filled in (".", ".."):
        raise Unfit(f"a URL's path cannot contain {filled!r}")
    return filled


def _whole(text: str, values: Mapping[str, Value]) -> Value:
    """An entry that is one placeholder keeps the value's type."""
    alone = _PLACEHOLDER.fullmatch(text)
    if alone is not None:
        return values[alone[1]]
    return _PLACEHOLDER.sub(lambda found: _text(values[found[1]]), text)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
