"""A line to a server that loses what a test says, and breaks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio


class Relay:
    def __init__(self, server_port: int) -> None:
        self.port = 0
        #: Whether what clients send does not come to the server, and the other way round.
        self.loses_questions = self.loses_answers = False
        self._server_port = server_port
        self._lost = bytearray()
        self._lot = trio.lowlevel.ParkingLot()
        self._scopes: set[trio.CancelScope] = set()

    async def serve(self, client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", self._server_port)
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(self._carry, client, server, scope, True)
                nursery.start_soon(self._carry, server, client, scope, False)
        self._scopes.discard(scope)

    async def _carry(
        self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope, is_question: bool
    ) -> None:
        try:
            async for data in source:
                if self.loses_questions if is_question else self.loses_answers:
                    self._lost += data
                    self._lot.unpark_all()
                else:
                    await target.send_all(data)
        except trio.BrokenResourceError:
            pass
        scope.cancel()

    async def lost(self, text: bytes) -> None:
        """Until this is."""
        while text not in self._lost:
            await self._lot.park()

    def cut(self) -> None:
        """All connections break. Those that follow lose nothing."""
        self.loses_questions = self.loses_answers = False
        for scope in self._scopes:
            scope.cancel()


@asynccontextmanager
async def relayed(server_port: int) -> AsyncGenerator[Relay]:
    relay = Relay(server_port)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), relay.serve, 0)
        relay.port = listeners[0].socket.getsockname()[1]
        yield relay
        nursery.cancel_scope.cancel()
