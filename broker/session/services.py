"""The services of a node for its sessions. They are passed in, so that a session can be tested on its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.metrics import DropReason
from trunkline.broker.overload import Overload
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import MESSAGE_DROPPED, MESSAGE_PUBLISH
from trunkline.mqtt.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.alarms import Alarms
    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.committer import Committer
    from trunkline.broker.guid import Guids
    from trunkline.broker.limit_report import LimitReport
    from trunkline.broker.log_throttle import LogThrottle
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.pubsub import PubSub
    from trunkline.broker.session.access import Access
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.feeds import FeedHost
    from trunkline.config.config import Config
    from trunkline.config.mqtt_settings import ZoneSession
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.decisions import Deny, Withhold
    from trunkline.mqtt.publication import Publication
    from trunkline.store.clock import StoreClock
    from trunkline.streams.host import StreamHost

#: A session expiry interval that never elapses (MQTT 5.0, section 3.1.2.11.2).
FOR_EVER: Final = 0xFFFF_FFFF


@dataclass(slots=True, eq=False)
class Services:
    config: Config
    hooks: Hooks
    metrics: Metrics
    #: Log lines for dropped messages, and for refused subscriptions.
    drops: LogThrottle[DropReason]
    refusals: LogThrottle[int]
    limit_report: LimitReport
    alarms: Alarms
    access: Access
    pubsub: PubSub
    guids: Guids
    #: What turns the node's monotonic time into the calendar's and into the store's.
    clock: StoreClock
    #: Gives a connection the session of its client id.
    open_session: Callable[[Channel], None]
    #: Stops reading from the publisher with this client id until `release_publisher`; False if it is not connected. The
    #: flag says whether the holder caught up the last time. The last argument of the release is how long the wait was
    #: in vain.
    hold_publisher: Callable[[str, object, bool], bool]
    release_publisher: Callable[[str, object, float], None]
    #: Runs a task that outlives the session that starts it.
    start_task: Callable[..., None]
    #: The client of a session; while it is not connected, as of its last connection.
    client_of: Callable[[str], ClientInfo | None]
    #: Where sessions are stored, and where their messages wait while they are behind; None where everything ends with
    #: the process.
    committer: Committer | None
    backlogs: Backlogs | None
    #: The streams of this process, made when they are asked for.
    streams: Callable[[], StreamHost]
    #: Those of the node, for its sessions, made when they are asked for.
    find_feeds: Callable[[], FeedHost[Any]]
    #: What the broker uses too much of.
    overload: Overload = field(default_factory=Overload)
    #: Client ids whose packets are logged.
    logged_clients: set[str] = field(default_factory=set[str])

    @property
    def feeds(self) -> FeedHost[Any]:
        return self.find_feeds()

    def publisher_of(self, message: Message) -> ClientInfo:
        """The publisher of a stored message, as far as it is still known."""
        client = self.client_of(message.publisher)
        if client is not None and client.username == message.username:
            return client
        return ClientInfo(message.publisher, message.username)

    def stamp(self, message: Message, now: float) -> Message:
        """Give a new message its id and its times."""
        wall = now + self.clock.calendar
        interval = message.properties.get("message_expiry_interval")
        message.guid, message.timestamp = self.guids.next(wall), wall
        message.expires_at = inf if interval is None else now + interval
        return message

    def publishing(self, client: ClientInfo, message: Publication, now: float) -> Publication | Deny | Withhold:
        """The publication after the hooks at `message.publish`."""
        changed = self.hooks.transform(MESSAGE_PUBLISH, client, message)
        if changed is not message and isinstance(changed, Message):
            interval = changed.properties.get("message_expiry_interval")
            changed.expires_at = inf if interval is None else now + interval
        return changed

    def dropped(self, client: ClientInfo, publication: Publication, reason: DropReason, why: str = "") -> None:
        """Count a dropped publication, or a dropped delivery to this subscriber; log it and run the hooks. `why` is for
        the log."""
        topic, count = publication.topic, publication.count
        self.metrics.dropped[reason] += count
        self.drops.note(reason, client.client_id, f"{topic}: {why}" if why else topic, count)
        if self.hooks.message_dropped:
            self.hooks.notify(MESSAGE_DROPPED, client, publication, reason.word)

    def refused_by_stream(self, message: Message, why: str) -> None:
        """Of a publisher in another process, which is told there."""
        self.dropped(self.publisher_of(message), message, DropReason.STREAM_FULL, why)

    def not_told(self, client: ClientInfo, filter: str, count: int, reason: DropReason) -> None:
        """As `dropped`, of messages that are not here, or that no hook asks for."""
        if count:
            self.metrics.dropped[reason] += count
            self.drops.note(reason, client.client_id, filter, count)

    def unheard(self, client: ClientInfo, publication: Publication) -> None:
        """It went to nobody: nobody wanted it, or a stream has refused it."""
        refusal = self.pubsub.refused(publication)
        reason = DropReason.STREAM_FULL if refusal else DropReason.NO_SUBSCRIBERS
        self.dropped(client, publication, reason, refusal)


def bounded_expiry(asked: int, settings: ZoneSession) -> float:
    """The session expiry that a client gets, in seconds: the requested one, up to the configured maximum."""
    expiry = inf if asked == FOR_EVER else float(asked)
    return min(expiry, settings.max_expiry_interval or inf)
