"""What a session may ask of its node. Handed in, so that a session can be tested with nothing else around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import MESSAGE_DROPPED, MESSAGE_PUBLISH
from trunkline.mqtt.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.guid import Guids
    from trunkline.broker.log_throttle import LogThrottle
    from trunkline.broker.metrics import DropReason, Metrics
    from trunkline.broker.pubsub import PubSub
    from trunkline.broker.session.access import Access
    from trunkline.broker.session.channel import Channel
    from trunkline.config.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.decisions import Deny, Withhold

#: A session expiry interval that never elapses (MQTT 5.0, section 3.1.2.11.2).
FOR_EVER: Final = 0xFFFF_FFFF


@dataclass(slots=True, eq=False)
class Services:
    config: Config
    hooks: Hooks
    metrics: Metrics
    #: What the log has of messages that are dropped and of subscriptions that are refused.
    drops: LogThrottle[DropReason]
    refusals: LogThrottle[int]
    alarms: Alarms
    access: Access
    pubsub: PubSub
    guids: Guids
    #: Seconds to add to the node's monotonic time for seconds since the epoch.
    epoch: float
    #: Gives a connection the session of its client id.
    open_session: Callable[[Channel], None]
    #: Asks the publisher with this client id to send nothing until `release(holder)`; False when it is not here.
    #: A holder that caught up the last time is trusted; what the publisher has waited in vain is told at its release.
    hold_publisher: Callable[[str, object, bool], bool]
    release_publisher: Callable[[str, object, float], None]
    #: Runs what takes time and belongs to no session that may end meanwhile.
    start_task: Callable[..., None]
    #: The client of a session that is here; of one that nobody is connected to, the last.
    client_of: Callable[[str], ClientInfo | None]
    #: Client ids whose packets are to be in the log.
    logged_clients: set[str] = field(default_factory=set[str])

    def publisher_of(self, message: Message) -> ClientInfo:
        """Who published a message that was kept, as far as that is still known."""
        client = self.client_of(message.publisher)
        if client is not None and client.username == message.username:
            return client
        return ClientInfo(message.publisher, message.username)

    def publishing(self, client: ClientInfo, message: Message, now: float) -> Message | Deny | Withhold:
        """The message as the hooks at `message.publish` leave it."""
        changed = self.hooks.transform(MESSAGE_PUBLISH, client, message)
        if changed is not message and isinstance(changed, Message):
            interval = changed.properties.get("message_expiry_interval")
            changed.expires_at = inf if interval is None else now + interval
        return changed

    def dropped(self, client: ClientInfo, message: Message, reason: DropReason, why: str = "") -> None:
        """Count a message that went nowhere, or not to this subscriber, and tell who wants to know. `why` is for the log."""
        self.metrics.drop(reason)
        self.drops.note(reason, client.client_id, f"{message.topic}: {why}" if why else message.topic)
        if self.hooks.message_dropped:
            self.hooks.notify(MESSAGE_DROPPED, client, message, reason.word)

    def bounded_expiry(self, asked: int) -> float:
        """The session expiry that a client gets, in seconds: what it asks for, up to the configured maximum."""
        expiry = inf if asked == FOR_EVER else float(asked)
        return min(expiry, self.config.session.max_expiry_interval or inf)
