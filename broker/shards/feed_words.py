"""What two shards say about subscriptions to streams: one has the session, the other one has the stream.

A feed is named as the consumer that it is. It is opened anew with each connection, under another number: what was on
its way in an earlier opening belongs to nobody any more. Its messages come as publications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OpenFeed(NamedTuple):
    name: str
    opening: int
    stream: str
    #: Of the consumer, if it is not there.
    config: Mapping[str, Any]
    #: The number of the stream and the last sequence that the session has; zeros, if it does not know.
    number: int
    sequence: int
    #: The subscription is a new one: a consumer that has the name is that of a former one.
    is_new: bool


class FeedOpened(NamedTuple):
    name: str
    opening: int
    #: The number of the stream, and the sequence behind which it begins.
    number: int
    sequence: int
    #: Empty: it is open.
    refusal: str


class FeedRoom(NamedTuple):
    name: str
    opening: int
    #: The session has everything up to this sequence, stored if it is durable.
    sequence: int
    #: So much may have been sent in this opening.
    messages: int
    byte_size: int


class CloseFeed(NamedTuple):
    name: str
    stream: str
    #: The subscription has ended, and its consumer with it; otherwise the client has gone.
    has_ended: bool


class FeedEnded(NamedTuple):
    """The stream or the consumer was deleted."""

    name: str
    opening: int


class KnownFeed(NamedTuple):
    name: str
    stream: str
    client_id: str
    filter: str


class KnownFeeds(NamedTuple):
    """Consumers that are there for sessions of the other shard, some at a time. It closes those that it does not
    know."""

    feeds: Sequence[KnownFeed]


FeedWord: TypeAlias = OpenFeed | FeedOpened | FeedRoom | CloseFeed | FeedEnded | KnownFeeds

#: What these words are about, and the question whether there may be such consumers: for each the name of the stream and
#: the consumer's configuration. The answer is, for each, why not, or empty.
FEEDS: Final = "feeds"
MAY_FEED: Final = "feed?"
#: By number, which is never given again.
_KINDS: Final[tuple[type[Any], ...]] = (OpenFeed, FeedOpened, FeedRoom, CloseFeed, FeedEnded)
_KNOWN: Final = len(_KINDS)
#: What may stand in a field, by its annotation.
_TYPES: Final[dict[str, type]] = {"int": int, "str": str, "bool": bool, "Mapping[str, Any]": dict}


class FeedMessage(NamedTuple):
    """What comes with a message of a feed."""

    name: str
    opening: int
    sequence: int
    qos: int
    #: Bytes that it counts as.
    byte_size: int


def feed_to_plain(word: FeedWord) -> tuple[Any, ...]:
    if isinstance(word, KnownFeeds):
        return _KNOWN, *map(tuple, word.feeds)
    return _KINDS.index(type(word)), *word


def feed_from_plain(plain: Sequence[Any]) -> FeedWord:
    """
    Raises:
        Exception: it is none.
    """
    number: int = plain[0]
    fields = plain[1:]
    if number == _KNOWN:
        return KnownFeeds([_read(KnownFeed, each) for each in fields])
    word: FeedWord = _read(_KINDS[number], fields)
    return word


def _read(kind: type[Any], fields: Sequence[Any]) -> Any:
    for wanted, value in zip(kind.__annotations__.values(), fields, strict=True):
        if type(value) is not _TYPES[wanted.__forward_arg__] or (type(value) is int and value < 0):
            raise ValueError(f"no {wanted.__forward_arg__}: {value!r:.40}")
    return kind(*fields)
