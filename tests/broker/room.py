"""A broker and its clients in one process: what most tests of the broker's parts begin with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.connection.connection import Connection
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.parts import Node
from trunkline.broker.session.actor import SessionActor


class Room:
    def __init__(self, broker: testing.Broker) -> None:
        self.broker = broker
        self._wires: list[Wire] = []

    @property
    def admin(self) -> Admin:
        return self.broker.node

    @property
    def node(self) -> Node:
        return inside(self.broker.node)

    def wire(self, version: int = 5) -> Wire:
        """A connection that has not said anything yet."""
        wire = Wire(self.broker.connect(), version=version, patience=60)
        self._wires.append(wire)
        return wire

    async def client(self, client_id: str, version: int = 5, **settings: Any) -> Wire:
        wire = self.wire(version)
        await wire.connect(client_id, **settings)
        return wire

    async def stay(self, client_id: str, expiry: int = 1000, **settings: Any) -> Wire:
        """A 5.0 client that takes up its session, or begins one that outlives the connection."""
        return await self.client(client_id, clean=False, properties=raw.session_expiry(expiry), **settings)

    def session(self, client_id: str) -> SessionActor:
        found = self.node.sessions.get(client_id)
        assert isinstance(found, SessionActor), f"no session of {client_id}"
        return found

    def read(self, client_id: str, data: bytes) -> None:
        """Have the connection of a client get bytes, in a turn, as a poller does."""
        channel = self.session(client_id).channel
        for connection in self.node.listeners.connections:
            if isinstance(connection, Connection) and connection._channel is channel:  # pyright: ignore[reportPrivateUsage]
                connection.receive(data)

    async def leave(self) -> None:
        for wire in self._wires:
            await wire.abort()


@asynccontextmanager
async def room(*, history: int = 0, **settings: Any) -> AsyncIterator[Room]:
    """Without a history, as a broker of its own: bursts stay bursts."""
    async with testing.broker(history=history, **settings) as broker:
        opened = Room(broker)
        try:
            yield opened
        finally:
            await opened.leave()
