"""What lives in the broker's own trio run. Its faces (`Broker`, `ThreadBroker`) reach it from wherever the test runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.config import Config
from trunkline.broker.node import open_node
from trunkline.management.views import client_row, retained_rows, subscription_rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from trunkline.broker.node import Node
    from trunkline.hooks.chain import Hooks
    from trunkline.management.views import ClientRow, RetainedRow, SubscriptionRow

#: Seconds that clients which a test left open have to close, at the end. What was sent to them waits in their sockets, and
#: in this process nothing is gained by waiting until they have read it.
GRACE: Final = 0.0
#: Rows that are asked for at a time.
_PAGE: Final = 1000


class Inside:
    def __init__(self, node: Node) -> None:
        #: The one that runs now.
        self.node = node

    def sessions(self) -> list[ClientRow]:
        return [client_row(actor) for actor in self.node.sessions.page(limit=len(self.node.sessions))]

    def clients(self) -> list[ClientRow]:
        return [row for row in self.sessions() if row.connected]

    def subscriptions(self) -> list[SubscriptionRow]:
        rows: list[SubscriptionRow] = []
        page = subscription_rows(self.node.router, limit=_PAGE)
        while page:
            rows += page
            page = subscription_rows(self.node.router, (page[-1].filter, page[-1].client_id), _PAGE)
        return rows

    def retained(self) -> list[RetainedRow]:
        rows: list[RetainedRow] = []
        after: str | None = ""
        while after is not None:
            page, after = retained_rows(self.node.retained, trio.current_time(), after, _PAGE)
            rows += page
        return rows

    async def wait_until(self, condition: Callable[[], object], timeout: float) -> None:  # noqa: ASYNC109 - the same in code that does not await
        """
        Raises:
            TimeoutError: it did not come true. The message has what there was instead.
        """
        with trio.move_on_after(timeout):
            while not condition():
                await self._stepped()
            return
        raise TimeoutError(
            f"this did not come true within {timeout:g} s: {condition}\n"
            f"clients: {', '.join(row.client_id for row in self.clients()) or 'none'}\n"
            f"subscriptions: {', '.join(f'{row.client_id} to {row.filter}' for row in self.subscriptions()) or 'none'}"
        )

    async def _stepped(self) -> None:
        """Wait until the actors have done something."""
        stepped = trio.Event()
        self.node.scheduler.at_end(stepped.set)
        await stepped.wait()


def configuration(settings: Mapping[str, Any]) -> Config:
    """Of a test's broker: it listens on a port of its own, and publishes no `$SYS` topics unless it is told to.

    Raises:
        ConfigError: with all that is wrong.
    """
    return Config.from_mapping({"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}, **settings})


@asynccontextmanager
async def opened(settings: Mapping[str, Any], hooks: Hooks | None) -> AsyncGenerator[Inside, None]:
    """Run a broker in this trio run for the length of a block.

    Raises:
        ConfigError: the settings are wrong.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used.
    """
    async with open_node(configuration(settings), hooks, GRACE) as node:
        yield Inside(node)
