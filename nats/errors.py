"""Errors of NATS, with the words in which a server tells them."""

from __future__ import annotations


class NatsError(Exception):
    """Anything that goes wrong with NATS."""


# The protocol


class ProtocolError(NatsError):
    """The other side broke the protocol. `answer` is what a server says of it in `-ERR`, before it closes the
    connection; the text says what was wrong, and where."""

    answer = "Unknown Protocol Operation"


class LineTooLong(ProtocolError):
    """A control line is longer than allowed."""

    answer = "maximum control line exceeded"


class PayloadTooLarge(ProtocolError, ValueError):
    """A message, with its headers, is larger than allowed."""

    answer = "Maximum Payload Violation"


class BadSubject(NatsError, ValueError):
    """The text is no subject, or none for this purpose."""


class BadHeaders(NatsError, ValueError):
    """The bytes are no block of headers, or names or values cannot stand in one."""


class NotJetStream(NatsError, ValueError):
    """A message did not come from a consumer of JetStream: its reply subject is not one to acknowledge it by."""


# The client


class ConnectFailed(NatsError):
    """No server of the list took the connection. The text names each with what it said."""


class ConnectionLost(NatsError):
    """The connection has ended. What was written to it, and not answered, may be lost."""


class StaleConnection(ConnectionLost):
    """The server has not answered PING in time."""


class ClientClosed(NatsError):
    """The client is not open any more, or drains."""


class ServerError(NatsError):
    """What a server says in `-ERR`, in its own words."""


class AuthorizationFailed(ServerError):
    """The server does not let the client in, or not any more."""


class PermissionDenied(ServerError):
    """The client may not publish, or subscribe, to a subject. The connection goes on."""


class BufferFull(NatsError):
    """More waits to be sent than is allowed."""


class NoResponders(NatsError):
    """Nobody subscribes to the subject of a request."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"nobody answers requests to {subject!r}")
        self.subject = subject


class RequestTimeout(NatsError, TimeoutError):
    """No answer came in time."""


class BadCredentials(NatsError, ValueError):
    """A file of credentials, or a seed, is none."""
