"""What a client's CONNECT asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.broker.connection.handshake import is_text

if TYPE_CHECKING:
    from trunkline.nats.protocol.operations import Json

#: The newest version of the protocol that a client may speak: 1 is told INFO at any time.
NEWEST_PROTOCOL: Final = 1


class BadOptions(Exception):
    """What stands in CONNECT cannot be. The text is what is answered, if anything."""


@dataclass(frozen=True, slots=True)
class ConnectTerms:
    """A key that is missing has NATS's default."""

    is_verbose: bool = True
    is_pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    user: str = ""
    #: Of the user; or a token, where there is no user.
    password: str = ""
    name: str = ""
    library: str = ""


def read_terms(options: Json) -> ConnectTerms:
    """
    Raises:
        BadOptions: a value has the wrong type, or the client wants what cannot be.
    """

    def flag(key: str, default: bool) -> bool:
        value = options.get(key, default)
        if not isinstance(value, bool):
            raise BadOptions
        return value

    def text(key: str) -> str:
        value = options.get(key) or ""
        if not isinstance(value, str) or not is_text(value):
            raise BadOptions
        return value

    protocol = options.get("protocol", 0)
    if not isinstance(protocol, int) or not 0 <= protocol <= NEWEST_PROTOCOL:
        raise BadOptions("invalid client protocol")
    headers, no_responders = flag("headers", False), flag("no_responders", False)
    if no_responders and not headers:
        raise BadOptions("no responders requires headers support")
    return ConnectTerms(
        flag("verbose", True),
        flag("pedantic", True),
        flag("echo", True),
        headers,
        no_responders,
        text("user"),
        text("pass") or text("auth_token"),
        text("name"),
        f"{text('lang')} {text('version')}".strip(),
    )
