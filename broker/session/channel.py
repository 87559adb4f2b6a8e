"""One network connection from its session's side: the terms of the CONNECT, and state that ends with the connection."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.session.aliases import ReceivedAliases, SentAliases

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.rate_limits import Buckets
    from trunkline.broker.session.mail import ToConnection, ToSession
    from trunkline.broker.session.revoked import Revoked
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Exchange
    from trunkline.mqtt.errors import ProtocolError
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import Will
    from trunkline.mqtt.publication import Decoded
    from trunkline.mqtt.versions import Version


def nothing_unread() -> bool:
    return False


@dataclass(slots=True, eq=False)
class Channel:
    """Lives from CONNECT to the end of the network connection. A session has one, or none while its client is away."""

    client: ClientInfo
    #: Requests to the connection.
    cast: Callable[[ToConnection], None]
    #: Ends the connection with an error that it is to blame for.
    crash: Callable[[Exception], None]
    version: Version
    #: The settings at the client's listener.
    config: Config
    clean_start: bool = True
    #: Seconds that the session outlives the connection; may change at DISCONNECT. inf: for ever.
    expiry_interval: float = 0.0
    will: Will | None = None
    #: QoS 1 and 2 messages that the client accepts unacknowledged.
    receive_maximum: int = 65_535
    #: The same in the other direction, for a 5.0 client. 0 means no limit: CONNACK named none below the number of
    #: packet ids, or the client uses 3.x.
    receive_maximum_in: int = 0
    #: Bytes of the largest packet that the client accepts; 0 means no limit.
    max_packet_size: int = 0
    #: Whether the client accepts reason strings and user properties on packets other than PUBLISH, CONNACK and
    #: DISCONNECT.
    problem_information: bool = True
    #: The properties of a 5.0 client's CONNACK.
    connack: Properties = field(default=NO_PROPERTIES)
    authentication_method: str | None = None
    #: A re-authentication under way.
    exchange: Exchange | None = None
    #: Topic aliases that the client has set, and those that the broker has set.
    aliases_in: ReceivedAliases = field(default_factory=ReceivedAliases)
    aliases_out: SentAliases = field(default_factory=SentAliases)
    #: Decisions of the access rules, dropped when the rules change. Publishing: by `qos << 1 | retain`, then by
    #: topic.
    may_publish: defaultdict[int, dict[str, bool]] = field(default_factory=lambda: defaultdict(dict))
    may_read: dict[str, bool] = field(default_factory=lambda: {})
    #: The limits beyond which the client's messages are refused; None where there are none.
    quota: Buckets | None = None
    #: Messages on their way that the client may no longer receive.
    revoked: Revoked | None = None
    #: The decision about exactly this packet, which waited for it.
    answer: tuple[Message, bool] | None = None
    #: How often decisions were dropped: a decision requested before that is no longer valid when it arrives.
    rules: int = 0
    #: Sends messages to the session of this connection. Set when it gets one.
    session: Callable[[ToSession], None] = field(init=False)
    #: From a poller's turn: has the session handle at once what was read; False if something waits before it.
    hand: Callable[[tuple[Channel, list[Decoded], ProtocolError | None]], bool] = field(init=False)
    #: Wire bytes for the client, in order. Set by the connection, whose transport they go to.
    send: Callable[[bytes], None] = field(init=False)
    #: Whether a DISCONNECT that cancels the will has come and was not read yet.
    says_goodbye: Callable[[], bool] = nothing_unread
    #: Whether the session existed before. Known when the channel is attached to it.
    resumed: bool = False
    #: Whether CONNACK was sent.
    is_accepted: bool = False
    #: True if every PUBLISH to this client may be the shared encoding.
    plain: bool = True

    def forget_decisions(self) -> None:
        self.rules += 1
        self.answer = None
        self.may_publish.clear()
        self.may_read.clear()
