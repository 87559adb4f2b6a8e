"""The answers that a callback can return, besides None (go on) and a new value."""

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
    """Denies, at a deciding point; refuses the value, at a transforming one. It ends the chain.

    A 5.0 client is told `reason`, and `text` as its reason string.
    """

    reason: Reason = Reason.NOT_AUTHORIZED
    text: str = ""
    #: At `message.publish`, `client.subscribe` and `client.unsubscribe`: end the connection with this reason, in place
    #: of an acknowledgement.
    disconnect: bool = False

    def __post_init__(self) -> None:
        # Deny("go away") is an easy mistake, and would be noticed only when the client is answered
        if not isinstance(self.reason, Reason) or not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"Deny takes a Reason, then a text (or text=...), not {self.reason!r:.80}, {self.text!r:.80}"
            )
        if self.reason < Reason.UNSPECIFIED_ERROR:
            raise ValueError(f"{self.reason.name} cannot be a reason to deny: it reports success to the client")


@final
@dataclass(frozen=True, slots=True)
class Withhold:
    """The client gets success, and nothing happens. It ends the chain."""

    #: The reason code that the client gets.
    reason: Reason = Reason.SUCCESS
    #: Does a message get lost?
    dropped: bool = False


#: The callback keeps a message, to publish it later or not at all: its publisher gets success, and the message does not
#: count as dropped.
TAKEN: Final = Withhold()

#: Drops a message without telling its publisher: 0x10 counts as success.
DROP: Final = Withhold(Reason.NO_MATCHING_SUBSCRIBERS, dropped=True)


@final
@dataclass(frozen=True, slots=True)
class Stop(Generic[T]):
    """Replaces the value and ends the chain: callbacks of lower priority are not called."""

    value: T


@final
class _StopHere:
    __slots__ = ()

    def __repr__(self) -> str:
        return "STOP"


#: Ends the chain and keeps the value as it is. From a decider it means that no callback decides.
STOP: Final = _StopHere()
