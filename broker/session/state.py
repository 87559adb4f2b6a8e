"""What outlives the connection: the state of a session (MQTT 5.0, section 4.1), as a value.

It can be exported, stored, moved to another place and restored there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.broker.pubsub import Subscriber
    from trunkline.broker.session.mqueue import MessageQueue
    from trunkline.broker.session.revoked import Revoked
    from trunkline.mqtt.awaiting_rel import AwaitingRel
    from trunkline.mqtt.inflight import Inflight
    from trunkline.mqtt.message import Message
    from trunkline.router import Options, Target

#: Messages that are thrown away or handed over in one turn: others get theirs before the next.
MESSAGES_AT_ONCE: Final = 500


class Session:
    __slots__ = (
        "awaiting_rel",
        "client_id",
        "created_at",
        "expiry_interval",
        "inflight",
        "queue",
        "revoked",
        "subscriptions",
        "unasked",
    )

    def __init__(
        self,
        client_id: str,
        created_at: float,
        inflight: Inflight[Target[Subscriber]],
        queue: MessageQueue[Target[Subscriber]],
        awaiting_rel: AwaitingRel[Message | None],
    ) -> None:
        self.client_id = client_id
        #: Seconds since the epoch.
        self.created_at = created_at
        #: Seconds that it is kept without a connection; inf is for ever.
        self.expiry_interval = 0.0
        self.subscriptions: dict[str, Options] = {}
        #: Those of them that somebody made on the client's behalf: access rules are not asked about them.
        self.unasked: set[str] = set()
        #: Subscriptions that were taken away, as long as messages that came by them may be here.
        self.revoked: Revoked | None = None
        #: Sent and not yet acknowledged.
        self.inflight = inflight
        #: Not yet sent.
        self.queue = queue
        #: QoS 2 messages from the client, which are routed when their PUBREL comes.
        #: None stands for one that was refused, which a 3.x client cannot be told.
        self.awaiting_rel = awaiting_rel
