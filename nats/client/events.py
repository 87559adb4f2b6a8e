"""What happens to a client's connection, besides messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from trunkline.nats.client.subscription import BaseSubscription
    from trunkline.nats.errors import NatsError, ServerError, StatusError


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is lost, and the client looks for a server."""

    error: NatsError


@dataclass(frozen=True, slots=True)
class Reconnected:
    """To this server."""

    url: str


@dataclass(frozen=True, slots=True)
class Discovered:
    """Servers that the client did not know."""

    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LameDuck:
    """The server is going to end. The client connects to another one when it has."""


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """Messages of this subscription are dropped, as too many wait. It is told once, until none waits."""

    subscription: BaseSubscription[Any]


@dataclass(frozen=True, slots=True)
class AnswersDropped:
    """Answers to a request to this subject are dropped, as too many wait. It is told once for each request."""

    subject: str


@dataclass(frozen=True, slots=True)
class ServerSaid:
    """An error that the server has told of. The connection goes on."""

    error: ServerError


# Subscriptions to consumers


@dataclass(frozen=True, slots=True)
class HeartbeatMissed:
    """Nothing came from the consumer for so many seconds, not even a heartbeat. It is told again after as many."""

    subscription: BaseSubscription[Any]
    silent: float


@dataclass(frozen=True, slots=True)
class MessagesMissed:
    """Messages with these sequences of the consumer did not come. They are delivered again, if the consumer wants
    acknowledgements."""

    subscription: BaseSubscription[Any]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ConsumerRenewed:
    """An ordered subscription has missed something, and has a new consumer that begins with what was missed."""

    subscription: BaseSubscription[Any]


@dataclass(frozen=True, slots=True)
class PullFailed:
    """A pull has ended with an error that may pass. The subscription tries again."""

    subscription: BaseSubscription[Any]
    error: StatusError


@dataclass(frozen=True, slots=True)
class DeleteFailed:
    """The consumer of a drained subscription is still there."""

    subscription: BaseSubscription[Any]
    error: NatsError


@dataclass(frozen=True, slots=True)
class ChunksLeft:
    """An object was replaced or deleted, and its chunks still fill the store: those of this subject."""

    subject: str
    error: NatsError


Event: TypeAlias = (
    Disconnected
    | Reconnected
    | Discovered
    | LameDuck
    | SlowConsumer
    | AnswersDropped
    | ServerSaid
    | HeartbeatMissed
    | MessagesMissed
    | ConsumerRenewed
    | PullFailed
    | DeleteFailed
    | ChunksLeft
)


def words_of(event: Event) -> str:
    """For a log."""
    match event:
        case Disconnected(error):
            return f"the connection to NATS is lost: {error}"
        case Reconnected(url):
            return f"connected to NATS again: {url}"
        case Discovered(urls):
            return f"found more servers: {', '.join(urls)}"
        case SlowConsumer(subscription):
            return f"messages of {subscription.subject!r} are dropped, as too many wait"
        case AnswersDropped(subject):
            return f"answers to a request to {subject!r} are dropped, as too many wait"
        case ServerSaid(error):
            return f"the server says: {error}"
        case HeartbeatMissed(subscription, silent):
            return f"{subscription!r}: nothing came for {silent:g} s, not even a heartbeat"
        case MessagesMissed(subscription, first, last):
            return f"{subscription!r}: messages {first} to {last} of the consumer did not come"
        case ConsumerRenewed(subscription):
            return f"{subscription!r}: the consumer was made anew, as something was missed"
        case PullFailed(subscription, error):
            return f"{subscription!r}: a pull has failed: {error}"
        case DeleteFailed(subscription, error):
            return f"{subscription!r}: its consumer could not be deleted: {error}"
        case ChunksLeft(subject, error):
            return f"the chunks {subject!r}, which no object has any more, could not be removed: {error}"
        case _:
            return "the server is going to end"
