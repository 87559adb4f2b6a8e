"""What a client's CONNECT asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.broker.connection.handshake import is_text

if TYPE_CHECKING:
    from trunkline.nats.protocol.operations import Json

#: The newest version of the protocol that a client may speak: 1 is told INFO at any time.
NEWEST_PROTOCOL: Final = 1
#: What a client is told that may not come in as whom it says it is.
REFUSED: Final = "Authorization Violation"


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


#: What the keys of CONNECT hold, also those of which nothing is made here. Others may hold anything.
_KINDS: Final[dict[str, type]] = {
    **dict.fromkeys(("verbose", "pedantic", "echo", "headers", "no_responders", "tls_required"), bool),
    **dict.fromkeys(("user", "pass", "auth_token", "jwt", "nkey", "sig", "name", "lang", "version"), str),
    "protocol": int,
}


def read_terms(options: Json, before: ConnectTerms | None = None) -> ConnectTerms:
    """What is not said is as it was `before`, or has NATS's default.

    Raises:
        BadOptions: a value has the wrong type, or the client wants what cannot be.
    """
    before = before or ConnectTerms()
    said = {key.lower(): value for key, value in options.items() if value is not None}
    for key, kind in _KINDS.items():
        if type(said.get(key)) not in (kind, type(None)):
            raise BadOptions

    def text(key: str) -> str:
        value: str = said.get(key, "")
        if not is_text(value):
            raise BadOptions
        return value

    if not 0 <= said.get("protocol", 0) <= NEWEST_PROTOCOL:
        raise BadOptions("invalid client protocol")
    headers, no_responders = said.get("headers", before.headers), said.get("no_responders", before.no_responders)
    if no_responders and not headers:
        raise BadOptions("no responders requires headers support")
    return ConnectTerms(
        said.get("verbose", before.is_verbose),
        said.get("pedantic", before.is_pedantic),
        said.get("echo", before.echo),
        headers,
        no_responders,
        text("user") or before.user,
        text("pass") or text("auth_token") or before.password,
        text("name") or before.name,
        f"{text('lang')} {text('version')}".strip() or before.library,
    )
