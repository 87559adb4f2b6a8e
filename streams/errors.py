"""Why a stream or a consumer does not do what it was asked for."""

from typing import Final, Literal


class StreamError(Exception):
    """The base of all of them. Its text is for the user."""


class InvalidStreamConfig(StreamError, ValueError):
    """The configuration of a stream or a consumer contradicts itself, or the stream that it is for."""


class InvalidTransform(InvalidStreamConfig):
    """Topics cannot be changed so."""


class StreamsNotOffered(StreamError):
    """Of a broker that keeps none: the text says why."""


class StreamNotFound(StreamError, LookupError):
    def __init__(self, stream: str) -> None:
        super().__init__(f"there is no stream {stream!r}")
        self.stream = stream


class ConsumerNotFound(StreamError, LookupError):
    def __init__(self, stream: str, consumer: str) -> None:
        super().__init__(f"the stream {stream!r} has no consumer {consumer!r}")
        self.stream, self.consumer = stream, consumer


class MessageNotFound(StreamError, LookupError):
    """There is no such message, or not any more."""


class StreamExists(StreamError):
    """Another stream has the name, or takes some of the same topics."""


class FiltersTaken(StreamExists):
    """Another stream takes some of the same topics."""

    def __init__(self, stream: str, other: str, own: str, others: str) -> None:
        super().__init__(
            f"the stream {other!r} takes messages that the stream {stream!r} would take: {others!r} and {own!r} overlap"
        )
        self.other = other


class ConsumerExists(StreamError):
    """The stream has a consumer with this name and another configuration."""


class ConsumerBound(StreamError):
    """Somebody else receives from the consumer, which has no deliver group, or another one."""


class StreamForbids(StreamError):
    """The stream is sealed, or forbids to delete or to purge: `why` says which."""

    def __init__(self, text: str, why: Literal["sealed", "delete", "purge"]) -> None:
        super().__init__(text)
        self.why: Final = why


class StreamRefuses(StreamError):
    """The stream does not take the message."""


class MessageTooLarge(StreamRefuses):
    """It is above `max_message_size`."""


class StreamFull(StreamRefuses):
    """There is no room: `limit` says whether for messages, bytes, or messages of the topic."""

    def __init__(self, text: str, limit: Literal["messages", "bytes", "topic"]) -> None:
        super().__init__(text)
        self.limit: Final = limit


class StreamSealed(StreamRefuses):
    """Nothing is added any more."""


class RollupForbidden(StreamRefuses):
    """The message is to replace others, which the stream does not allow, or in a way that there is not."""


class LifeForbidden(StreamRefuses):
    """The message has a life of its own, which the stream does not allow."""


class InvalidLife(StreamRefuses):
    """The message says a life that there is not."""


class WrongLastId(StreamRefuses):
    """The last message with an id has another one than the publisher expected."""

    def __init__(self, stream: str, actual: str) -> None:
        super().__init__(f"the last id in the stream {stream!r} is {actual!r}")
        self.actual = actual


class WrongLastSequence(StreamError):
    """The stream, or the topic in it, is not where the publisher expected it to be."""

    def __init__(self, expected: int, actual: int, what: str) -> None:
        super().__init__(f"the last sequence of {what} is {actual}, not {expected}")
        self.expected, self.actual = expected, actual
