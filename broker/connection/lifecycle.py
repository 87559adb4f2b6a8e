"""The states of a connection, and the events that lead from one to the next. The table is the one of
`docs/connections.md`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConnectionState(StrEnum):
    AWAITING_CONNECT = "awaiting connect"
    #: The broker, or a service, decides whether the client may connect. Received packets wait.
    AUTHENTICATING = "authenticating"
    #: The client was sent an AUTH, and its answer is expected.
    AWAITING_AUTH = "awaiting auth"
    #: Another shard has the client, whose bytes go there and come from there.
    RELAYED = "relayed"
    #: The connection has its session.
    OPEN = "open"
    #: The last packet was sent. Further received bytes are discarded until the client closes.
    CLOSING = "closing"
    CLOSED = "closed"


class ConnectionEvent(StrEnum):
    CONNECT = "connect"
    #: The client belongs to another shard, and its connection cannot go there.
    RELAY = "relay"
    #: An AUTH goes to the client.
    CHALLENGE = "challenge"
    #: An AUTH comes from the client.
    AUTH = "auth"
    ACCEPT = "accept"
    #: The client is sent its last packet, a CONNACK or DISCONNECT, or none.
    CLOSE = "close"
    #: The network connection is over, or the client does not close in time.
    END = "end"


_S, _E = ConnectionState, ConnectionEvent

TRANSITIONS: Final[Mapping[tuple[ConnectionState, ConnectionEvent], ConnectionState]] = {
    (_S.AWAITING_CONNECT, _E.CONNECT): _S.AUTHENTICATING,
    (_S.AWAITING_CONNECT, _E.RELAY): _S.RELAYED,
    (_S.AUTHENTICATING, _E.CHALLENGE): _S.AWAITING_AUTH,
    (_S.AUTHENTICATING, _E.ACCEPT): _S.OPEN,
    (_S.AWAITING_AUTH, _E.AUTH): _S.AUTHENTICATING,
    **{(state, _E.CLOSE): _S.CLOSING for state in (_S.AWAITING_CONNECT, _S.AUTHENTICATING, _S.AWAITING_AUTH, _S.OPEN)},
    **{(state, _E.END): _S.CLOSED for state in _S if state is not _S.CLOSED},
}
#: States in which the client has not been accepted yet.
HANDSHAKE: Final = {_S.AWAITING_CONNECT, _S.AUTHENTICATING, _S.AWAITING_AUTH}
