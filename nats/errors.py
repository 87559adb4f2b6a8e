"""Errors of NATS, with the words in which a server tells them."""

from __future__ import annotations

import re
from typing import Final

#: What may not be done, in the words of servers.
_DENIED: Final = re.compile(
    r'(?P<what>publish|subscription) to "(?P<subject>[^"]*)"(?: using queue "(?P<queue>[^"]*)")?', re.IGNORECASE
)


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


class CannotSubscribe(NatsError, ValueError):
    """A subscription to a consumer contradicts itself, or the consumer that there is."""


class StatusError(NatsError):
    """What a server says to a subscriber in place of a message. `code` is as in HTTP."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}".rstrip())
        self.code = code
        self.text = text


class UnknownStatus(StatusError):
    """One that this client does not know."""


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

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = _DENIED.search(text)
        #: Empty: the text does not say it.
        self.subject: str = found["subject"] if found else ""
        self.queue: str = (found["queue"] or "") if found else ""
        self.is_publishing = found is not None and found["what"].lower() == "publish"


class BufferFull(NatsError):
    """More waits to be sent than is allowed."""


class NoResponders(NatsError):
    """Nobody subscribes to the subject of a request. The `hint` says what that means, where more is known."""

    def __init__(self, subject: str, hint: str = "") -> None:
        super().__init__(f"nobody answers requests to {subject!r}{hint and f': {hint}'}")
        self.subject = subject


class RequestTimeout(NatsError, TimeoutError):
    """No answer came in time."""


class BadService(NatsError, ValueError):
    """A service or an endpoint cannot have this name, version or description."""


class ServiceError(NatsError):
    """What a service answers in place of a result. `code` is often as in HTTP."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        #: In one line, as it stands in a header.
        self.text = " ".join(text.split())
        super().__init__(f"{code}:{self.text}")


class NotSupported(NatsError):
    """The server is too old for what was asked of it: it has ignored some of a configuration, or would."""


class BadCredentials(NatsError, ValueError):
    """A file of credentials, or a seed, is none."""


# Buckets


class BucketMissing(NatsError, LookupError):
    """There is no such bucket."""


class KeyMissing(NatsError, LookupError):
    """A key has no value, or none with this revision, or not any more."""


class WrongRevision(NatsError):
    """The last revision of a key is not the one that was expected. The text is the server's."""


class KeyExists(WrongRevision):
    """A key that was to be new has a value."""


class ObjectMissing(NatsError, LookupError):
    """There is no such object, or not any more."""


class ObjectExists(NatsError):
    """There is an object of this name already, and it would be lost."""


class ObjectDamaged(NatsError):
    """What the store has is not what was put into it: chunks are missing, or the digest is another one."""


class BadLink(NatsError, ValueError):
    """A link to what cannot be linked to, or which leads to no object."""
