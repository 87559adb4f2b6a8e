"""What a protocol is for listeners: the actor of each connection, and what the connections of one listener share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from trunkline.actors import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.net.transport import Transport
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings

M = TypeVar("M")


class ProtocolActor(Actor[M]):
    """Handles a protocol on a transport."""

    __slots__ = ()

    @property
    def in_handshake(self) -> bool:
        """Whether the client has not been accepted yet."""
        raise NotImplementedError

    @property
    def is_relayed(self) -> bool:
        """Whether another shard serves the client, and counts it."""
        return False

    def follow_settings(self) -> None:
        """Its listener has other settings."""
        raise NotImplementedError

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client, as far as they are known."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """Bytes that wait because the client does not read them yet."""
        raise NotImplementedError

    @property
    def is_paused(self) -> bool:
        """Whether the broker reads nothing from the client."""
        raise NotImplementedError

    @property
    def held_packet(self) -> tuple[int, int] | None:
        """The packet of which only a part has come from an accepted client: a number that no later one has, and the
        bytes that have come."""
        raise NotImplementedError

    def end_slow_packet(self, limit: str) -> None:
        """End the connection, because that packet takes longer than `limit`, which is in words."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """An operator ends the connection."""
        raise NotImplementedError


class ListenerProtocol(Protocol):
    """A protocol at one listener, under its settings."""

    def connect(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None], /) -> ProtocolActor[Any]:
        """Make the actor of a new connection. It calls back when it ends."""
        ...

    def configure(self, config: Config, settings: ListenerSettings | None, /) -> None:
        """The configuration of the node has changed, and with it perhaps the settings of the listener; None where
        connections have no socket."""
        ...


#: Makes what the connections of a new listener speak, from the node's configuration and the listener's settings.
ProtocolFactory: TypeAlias = "Callable[[Config, ListenerSettings | None], ListenerProtocol]"
#: Puts a layer on top of a transport, or nothing.
LayerFactory: TypeAlias = "Callable[[Transport], Transport]"
