"""Where the shards of a test's broker wait for each other when it ends."""

from __future__ import annotations

import trio

from trunkline.testing.clock import settled


class Meeting:
    """Again and again, until they have ended."""

    def __init__(self, shards: int) -> None:
        #: Those that have not ended.
        self._there = shards
        self._waiting = 0
        self._all_came = trio.Event()

    async def wait(self) -> None:
        """Until all have come so far, and all that they had to say to each other is said."""
        self._waiting += 1
        if self._waiting < self._there:
            await self._all_came.wait()
        else:
            if self._there > 1:
                await settled()
            self._go_on()

    def leave(self) -> None:
        """One has ended: nobody waits for it any more."""
        self._there -= 1
        if self._waiting >= self._there:
            self._go_on()

    def _go_on(self) -> None:
        came, self._all_came = self._all_came, trio.Event()
        self._waiting = 0
        came.set()
