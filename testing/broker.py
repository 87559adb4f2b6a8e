"""A broker in the test's own trio run.

async with trunkline.testing.broker() as b:
    stream = b.connect()                        # a trio stream, no socket
    client.connect(b.host, b.port)              # or a client of your own, by TCP
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.config import Config
from trunkline.broker.node import Node, open_node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import trio

    from trunkline.hooks.chain import Hooks

__all__ = ["Broker", "broker"]

#: Seconds that clients which a test left open have to close, at the end.
GRACE: Final = 0.05


class Broker:
    """A running broker."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def host(self) -> str:
        return self.node.listeners[0].address[0]

    @property
    def port(self) -> int:
        return self.node.listeners[0].address[1]

    @property
    def hooks(self) -> Hooks:
        """Register callbacks here; see docs/hooks.md."""
        return self.node.hooks

    def connect(self) -> trio.abc.Stream:
        """The client's end of a new connection, without a socket."""
        return self.node.connect()

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> int:
        """Publish in the broker's own name. Returns the number of sessions that it went to."""
        return self.node.publish(topic, payload, qos=qos, retain=retain)


@asynccontextmanager
async def broker(*, hooks: Hooks | None = None, **settings: Any) -> AsyncGenerator[Broker, None]:
    """Run a broker on a port of its own for the length of a block. `hooks` may have callbacks already.

    `settings` are sections of the configuration: `broker(session={"max_inflight": 1})`. `listeners` may be given too;
    by default there is one on the loopback interface. `$SYS` topics are off unless `sys` says otherwise.
    """
    defaults: dict[str, Any] = {"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}}
    async with open_node(Config.from_mapping({**defaults, **settings}), hooks, GRACE) as node:
        yield Broker(node)
