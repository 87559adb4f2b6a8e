"""The messages in the mailboxes of sessions and connections.

A session's mailbox takes `(publication, target)` for each delivery, a bare tuple because it is the hot path, and the
types below. A message is not changed after it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Due
    from trunkline.broker.routes import Queued, Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.state import Session
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.errors import ProtocolError
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.mqtt.publication import Decoded, Publication
    from trunkline.mqtt.reasons import Reason
    from trunkline.mqtt.session.ledger import Owed
    from trunkline.router.target import Target


@dataclass(slots=True, eq=False)
class Attach:
    """A connection gets this session: a new one, one whose client was away, or one that it takes over."""

    channel: Channel
    #: Whether the session existed before.
    present: bool
    #: Makes a session durable that is not; None if it need not be.
    store: Callable[[Session], None] | None = None
    #: Whether the store may still have an earlier session of this client id, which has ended.
    succeeds: bool = False


@dataclass(slots=True, eq=False)
class Received:
    """The packets of one read, in order, and the error that ended them."""

    channel: Channel
    packets: list[Decoded]
    error: ProtocolError | None = None


@dataclass(slots=True, eq=False)
class Stored:
    """What the client sent, so many bytes, is stored, or need not be any more; and its answer may leave, if there is
    one."""

    #: The commit that was being gathered when it came.
    gathering: int
    weight: float
    owed: Owed | None
    wire: bytes


@dataclass(slots=True, eq=False)
class Lost:
    """The network connection is over, for this reason."""

    channel: Channel
    reason: Reason
    text: str


@dataclass(slots=True, eq=False)
class Congested:
    """The socket is full: nothing is sent until `Writable`."""

    channel: Channel


@dataclass(slots=True, eq=False)
class Writable:
    """All output has been written."""

    channel: Channel


@dataclass(slots=True, eq=False)
class Routed:
    """The routes were made or removed, but for those that were refused. `proceed` goes on with the answer."""

    #: The connection that asked; None if no client is connected.
    channel: Channel | None
    #: Whether its client waits for the answer.
    is_awaited: bool
    proceed: Callable[[], None]


@dataclass(slots=True, eq=False)
class Answered:
    """The answer that this client had to wait for. `proceed` continues with it: it carries code, and comes from the
    session's own task."""

    channel: Channel
    proceed: Callable[[], None]


@dataclass(slots=True, eq=False)
class End:
    """End the session."""

    reason: Reason
    #: For hooks and logs: `discarded` by a clean start, `kicked` by an operator, `shutdown` of the node.
    cause: str
    #: For the log: the client that takes over the client id.
    successor: ClientInfo | None = None


@dataclass(slots=True, eq=False)
class Kick:
    """End the connection from our side. The session stays as after any other end of its connection."""

    reason: Reason
    text: str
    #: Only this connection; None for any.
    channel: Channel | None = None


@dataclass(slots=True, eq=False)
class SubscribeFor:
    """A plugin or an operator subscribes on behalf of the client, which gets no SUBACK. Nothing happens while it is
    away."""

    requests: list[SubscriptionRequest]


@dataclass(slots=True, eq=False)
class UnsubscribeFor:
    """A plugin or an operator unsubscribes on behalf of the client, which gets no UNSUBACK."""

    filters: list[str]


@dataclass(slots=True, eq=False)
class PublishWill:
    """The node is about to stop: publish the client's will while subscribers are connected."""


@dataclass(slots=True, eq=False)
class RulesChanged:
    """Access decisions may have changed, so cached ones are no longer valid."""

    #: Whether the client's subscriptions are checked again.
    subscriptions: bool = True


@dataclass(slots=True, eq=False)
class Close:
    """Send these last bytes, then close."""

    farewell: bytes


@dataclass(slots=True, eq=False)
class Pause:
    """Read no more, on behalf of `holder`, until it resumes."""

    holder: object


@dataclass(slots=True, eq=False)
class Resume:
    """`holder` no longer asks for a pause."""

    holder: object


@dataclass(slots=True, eq=False)
class LogPackets:
    """Log the packets of this connection, or stop logging them."""

    client: ClientInfo
    on: bool


if TYPE_CHECKING:
    ToSession: TypeAlias = (
        tuple[Publication, Target[Subscriber]]
        | Routed
        | Attach
        | Received
        | Lost
        | Congested
        | Writable
        | Answered
        | Kick
        | End
        | SubscribeFor
        | UnsubscribeFor
        | PublishWill
        | RulesChanged
        | Queued
        | Due
        | Stored
    )
    ToConnection: TypeAlias = Close | Pause | Resume | LogPackets
