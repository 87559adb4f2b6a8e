"""Overload: the broker uses more of a resource than its high mark, and has not come below its low mark since.

While a mark is exceeded, new clients are refused, deliveries of QoS 0 that would have to wait are dropped, and
publishers are read from for a part of the time only (`trunkline.broker.overload_monitor`). Clients that are connected
stay, and no message of QoS 1 or 2 is lost. Messages on their way pay nothing for this.
"""

from dataclasses import dataclass, field
from enum import Enum

from trunkline.broker.metrics import LimitKind
from trunkline.mqtt.reasons import Reason


class Resource(Enum):
    """Each with the reason code for refused clients, and what counts them."""

    MEMORY = "memory", Reason.QUOTA_EXCEEDED, LimitKind.OVERLOAD_MEMORY
    LAG = "lag", Reason.SERVER_UNAVAILABLE, LimitKind.OVERLOAD_LAG
    FILES = "files", Reason.QUOTA_EXCEEDED, LimitKind.OVERLOAD_FILES

    def __init__(self, word: str, reason: Reason, kind: LimitKind) -> None:
        #: As in the names of settings.
        self.word = word
        self.reason = reason
        self.kind = kind
        self.alarm = f"overload_{word}"


@dataclass(slots=True, eq=False)
class Overload:
    #: The resources whose marks are exceeded, each with its mark for the log. The same object for ever: queues hold it.
    exceeded: dict[Resource, str] = field(default_factory=dict[Resource, str])
    #: Seconds that the event loop is late, as last measured.
    lag: float = 0.0
