"""The reply subject of a message of JetStream: it says where the message comes from, and to it the message is
acknowledged.

It has 9 tokens, or 11 and more: then a domain and the hash of an account stand in front, `_` for no domain, and what
comes last may be anything.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trunkline.nats.errors import NotJetStream
from trunkline.nats.protocol.numbers import number_of

PREFIX: Final = "$JS.ACK."
_SHORT: Final = 9
_LONG: Final = 11
_NO_DOMAIN: Final = "_"

#: What is published to it. The first three end the exchange, the last asks for more time.
ACK: Final = b"+ACK"
NAK: Final = b"-NAK"
TERM: Final = b"+TERM"
PROGRESS: Final = b"+WPI"


class Origin(NamedTuple):
    """Where a message comes from."""

    stream: str
    consumer: str
    #: How often it was delivered, with this time.
    delivered: int
    stream_sequence: int
    consumer_sequence: int
    #: When the stream took it, in nanoseconds since the epoch.
    timestamp: int
    #: Messages that the consumer has still to deliver.
    pending: int
    #: Empty for none.
    domain: str = ""

    @property
    def time(self) -> float:
        """The timestamp in seconds, to the microsecond, as it is where a message is asked for by its sequence."""
        return self.timestamp // 1000 / 1_000_000


def origin_of(reply: str) -> Origin:
    """
    Raises:
        NotJetStream: no consumer has sent this message.
    """
    tokens = reply.split(".")
    if not reply.startswith(PREFIX):
        raise NotJetStream(f"the reply subject {reply!r} does not begin with {PREFIX}")
    if len(tokens) == _SHORT:
        domain, rest = "", tokens[2:]
    elif len(tokens) >= _LONG:
        domain, rest = tokens[2], tokens[4:_LONG]
    else:
        raise NotJetStream(f"{reply!r} has {len(tokens)} tokens, and not {_SHORT}, or {_LONG} or more")
    stream, consumer, *tokens = rest
    numbers = [number for token in tokens if (number := number_of(token)) is not None]
    if len(numbers) < len(tokens):
        raise NotJetStream(f"{reply!r:.1000} has something else where numbers are")
    delivered, stream_sequence, consumer_sequence, timestamp, pending = numbers
    domain = "" if domain == _NO_DOMAIN else domain
    return Origin(stream, consumer, delivered, stream_sequence, consumer_sequence, timestamp, pending, domain)
