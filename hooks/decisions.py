"""What a callback can answer, besides None (go on) and a new value."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar, final

from trunkline.mqtt.reasons import Reason

T = TypeVar("T")


@final
class Allow:
    """The type of ALLOW."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ALLOW"


#: A decider's yes. It ends the chain.
ALLOW: Final = Allow()


@final
@dataclass(frozen=True, slots=True)
class Deny:
    """A decider's no, and how a transforming callback refuses a value. It ends the chain.

    A 5.0 client is told `reason`, and `text` as its reason string.
    """

    reason: Reason = Reason.NOT_AUTHORIZED
    text: str = ""
    #: At `message.publish`, `client.subscribe` and `client.unsubscribe`: end the connection with this reason, in place
    #: of an acknowledgement.
    disconnect: bool = False

    def __post_init__(self) -> None:
        # Deny("go away") is easily written, and would be found only when the client is told
        if not isinstance(self.reason, Reason) or not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"Deny takes a Reason, then a text (or text=...), not {self.reason!r:.80}, {self.text!r:.80}"
            )
        if self.reason < Reason.UNSPECIFIED_ERROR:
            raise ValueError(f"{self.reason.name} is no reason to deny: it tells the client that all is well")


@final
@dataclass(frozen=True, slots=True)
class Withhold:
    """The client is told that all is well, and nothing happens. It ends the chain."""

    #: What it is told.
    reason: Reason = Reason.SUCCESS
    #: Is a message lost by it?
    dropped: bool = False


#: The callback keeps a message, to publish it later or not at all: its publisher is told that all is well, and nothing
#: counts as dropped.
TAKEN: Final = Withhold()

#: Drops a message without telling its publisher: 0x10 counts as success.
DROP: Final = Withhold(Reason.NO_MATCHING_SUBSCRIBERS, dropped=True)


@final
@dataclass(frozen=True, slots=True)
class Stop(Generic[T]):
    """Replaces the value and ends the chain: callbacks of lower priority are not asked."""

    value: T


@final
class _StopHere:
    __slots__ = ()

    def __repr__(self) -> str:
        return "STOP"


#: Ends the chain and keeps the value as it is. From a decider it means that nobody decides.
STOP: Final = _StopHere()
