"""What a supervisor and its workers say to each other. Descriptors may go along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast, get_args

from trunkline.broker.net.listening_sockets import SocketsWanted
from trunkline.config.addresses import ListenerAddress
from trunkline.mqtt.packing import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# From the supervisor


class Welcome(NamedTuple):
    """The first message."""

    number: int
    #: How many workers there are.
    workers: int
    term: int
    #: Of the sockets that are the node's own.
    folder: str
    #: Seconds within which the worker shows that it lives; 0: it need not.
    sign_of_life: float


class Reload(NamedTuple):
    """Read the configuration again. `Reloaded` answers."""


class AllQuiet(NamedTuple):
    """Every worker has said `Quiet`."""


class SocketsAre(NamedTuple):
    """The descriptors are those that were asked for; or the error that there is instead."""

    request: int
    errno: int
    error: str


class AlarmIs(NamedTuple):
    name: str
    #: Empty: it is over.
    text: str


# From a worker


class Ready(NamedTuple):
    """It serves."""


class Alive(NamedTuple):
    """Its event loop comes round."""


class Reloaded(NamedTuple):
    """Or not; its log says which."""


class CannotStart(NamedTuple):
    """What would have been printed, and the exit code."""

    problems: list[str]
    code: int


class Quiet(NamedTuple):
    """It ends: it accepts nobody any more, and has published the wills of its clients."""


class WantSockets(NamedTuple):
    """`SocketsAre` answers."""

    request: int
    #: The fields of `SocketsWanted`.
    fields: Sequence[Any]

    @property
    def wanted(self) -> SocketsWanted:
        label, address, *rest = self.fields
        return SocketsWanted(label, ListenerAddress(*address), *rest)


class SocketsClosed(NamedTuple):
    """Those that were asked for so are closed there."""

    request: int


Message: TypeAlias = (
    Welcome
    | Reload
    | AllQuiet
    | SocketsAre
    | AlarmIs
    | Ready
    | Alive
    | Reloaded
    | CannotStart
    | Quiet
    | WantSockets
    | SocketsClosed
)
_KINDS: Final[tuple[Callable[..., Any], ...]] = get_args(Message)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}


def encode(message: Message) -> bytes:
    return pack((_NUMBERS[type(message)], *message))


def decode(data: bytes) -> Message:
    """Both ends are of one version, and trust each other."""
    number, *fields = unpack(data)
    return cast("Message", _KINDS[number](*fields))
