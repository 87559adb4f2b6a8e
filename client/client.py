"""A client with one connection: opened when its block begins, closed when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from trunkline.client.block import BlockClient, settings_of
from trunkline.client.connection import Phase
from trunkline.client.errors import ClientClosed
from trunkline.client.limits import MAX_BUFFERED, MAX_BYTES, MAX_QUEUED, WaitingLimits
from trunkline.client.transport import open_stream

if TYPE_CHECKING:
    from trunkline.client.authentication import Authenticator
    from trunkline.client.running import Runner
    from trunkline.client.settings import ConnectionSettings
    from trunkline.client.transport import OpenStream


class Client(BlockClient):
    """`async with Client(settings) as client:` connects; leaving the block disconnects. When the connection is lost,
    the block is cancelled, and the error that says why comes out of it.
    """

    def __init__(
        self,
        settings: ConnectionSettings | None = None,
        *,
        authenticator: Authenticator | None = None,
        open_stream: OpenStream = open_stream,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_BYTES,
        max_buffered: int = MAX_BUFFERED,
        max_buffered_bytes: int = MAX_BYTES,
    ) -> None:
        """`open_stream` takes the place of the network: `Client(open_stream=broker.connect)`, with a broker of
        `trunkline.testing`.

        `max_queued` is how many requests may wait to be sent, `max_buffered` how many messages may wait in a receiver,
        and how many bytes of them.
        """
        limits = WaitingLimits(max_queued, max_queued_bytes, max_buffered, max_buffered_bytes)
        super().__init__(settings_of(settings), authenticator, open_stream, limits)

    async def _begin(self, nursery: trio.Nursery) -> None:
        with trio.move_on_after(self.settings.connect_timeout):
            runner = await self._new_connection()
            self._open()
            nursery.start_soon(self._keep, runner, nursery.cancel_scope)
            try:
                await runner.answered.wait()
                if runner.connection.phase is not Phase.OPEN:
                    raise runner.connection.error or ClientClosed()
            except BaseException:
                runner.abort()
                raise
            return
        raise self._no_answer()

    async def _keep(self, runner: Runner, block: trio.CancelScope) -> None:
        """The connection is there until it is lost, which ends the block, or closed by this side, which does not."""
        try:
            await runner.run()
        finally:  # also by an error of a stream that is not one of the network
            error = runner.connection.error
            self._shut(error or ClientClosed())
            self._over.set()
        if error is not None:
            block.cancel()
