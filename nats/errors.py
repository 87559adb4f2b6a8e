"""Errors of the NATS protocol, with the words in which a server tells them."""

from __future__ import annotations


class NatsError(Exception):
    """Anything that goes wrong with NATS."""


class ProtocolError(NatsError):
    """The other side broke the protocol. `answer` is what a server says of it in `-ERR`, before it closes the
    connection; the text says what was wrong, and where."""

    answer = "Unknown Protocol Operation"


class LineTooLong(ProtocolError):
    """A control line is longer than allowed."""

    answer = "Maximum Control Line Exceeded"


class PayloadTooLarge(ProtocolError):
    """A message, with its headers, is larger than allowed."""

    answer = "Maximum Payload Violation"


class BadSubject(NatsError, ValueError):
    """The text is no subject, or none for this purpose."""


class BadHeaders(NatsError, ValueError):
    """The bytes are no block of headers, or names or values cannot stand in one."""


class NotJetStream(NatsError, ValueError):
    """A message did not come from a consumer of JetStream: its reply subject is not one to acknowledge it by."""
