"""An application message: what is published, routed, queued, retained and stored."""

from dataclasses import dataclass, field
from math import inf

from trunkline.mqtt.properties import NO_PROPERTIES, Properties


@dataclass(slots=True, eq=False)
class Message:
    """One application message on its way through the broker.

    It is filled in before it is routed and never changed after: every subscriber shares the object.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    #: The publisher's properties, without topic alias and subscription identifiers.
    properties: Properties = field(default=NO_PROPERTIES)
    #: Client id of the publisher; empty for the broker's own messages.
    publisher: str = ""
    username: str | None = None
    #: 128 bits, unique; sorts by time, and per publisher by order of publishing.
    guid: int = 0
    #: Seconds since the epoch at which the broker took the message over.
    timestamp: float = 0.0
    #: The node's monotonic time after which nobody gets it any more.
    expires_at: float = inf
    # What follows is made from the fields above, so `dataclasses.replace` does not take it over.
    #: The whole PUBLISH at QoS 0 without RETAIN, as 3.x and as 5.0 write it: the form that most deliveries take.
    #: The decoder fills in the one it came as; `trunkline.mqtt.frames` the other, when somebody needs it.
    wire3: bytes | None = field(default=None, init=False, repr=False)
    wire5: bytes | None = field(default=None, init=False, repr=False)
    #: All other encoded forms, shared by all subscribers (`trunkline.mqtt.frames`).
    frames: "dict[int, tuple[bytes, bytes]] | None" = field(default=None, init=False, repr=False)

    def bare(self) -> "Message":
        """The same message without its encoded forms, which may take several times as much: for whoever keeps it for long."""
        return Message(
            self.topic,
            self.payload,
            self.qos,
            self.retain,
            self.properties,
            self.publisher,
            self.username,
            self.guid,
            self.timestamp,
            self.expires_at,
        )
