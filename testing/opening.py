"""A broker for the length of a block, wherever the test runs.

async with trunkline.testing.broker() as b:     # in trio: in the test's own run; in asyncio: in a thread
    client.connect(b.host, b.port)

with trunkline.testing.broker() as b:           # without either: in a thread
    client.connect(b.host, b.port)
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trunkline.testing.broker import Broker
from trunkline.testing.history import HISTORY
from trunkline.testing.portal import LocalPortal, in_trio
from trunkline.testing.report import listed
from trunkline.testing.running import Options, opened
from trunkline.testing.threads import in_asyncio, in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from trunkline.hooks.chain import Hooks
    from trunkline.testing.threads import ThreadBroker


def broker(
    *, hooks: Hooks | None = None, history: int = HISTORY, record: Path | str | None = None, **settings: Any
) -> Opening:
    """A broker on a port of its own, for the length of a block. `hooks` may have callbacks already.

    `async with broker() as b` gives a `Broker`. In trio it lives in the caller's own run, with the caller's clock; in
    asyncio in a thread. `with broker() as b`, in code without either, gives a `ThreadBroker`: the same, in a thread,
    and what would be awaited blocks.

    `settings` are sections of the configuration: `broker(session={"max_inflight": 1})`. `listeners` may be given too;
    by default there is one on the loopback interface. One at `tls://127.0.0.1:0` or `wss://127.0.0.1:0` needs no
    certificate: `client_context` of the broker is for its clients. `$SYS` topics are off unless `sys` says otherwise.
    Two more are not of the configuration: `users={"ada": "secret"}` lets these log in, and `rules=[{"permit": "allow",
    "user": "ada"}]` are the access rules.

    `workers` is how many shards it has, all in one trio run: by default one. What several show is of the broker as a
    whole. Callbacks that `hooks` has already, each of them has; later ones belong into the broker's `hooks`.

    `history` is how many messages are kept for `messages`, `wait_for` and the assertions. With 0 none are, and messages
    that come together are handled together, as in a broker of its own. `record` is the path of a journal to be written
    from the start.

    Opening it raises:
        ConfigError: the settings are wrong.
        TypeError: `users` or `rules` are of another form.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used, or one of `users` and `rules`.
        PluginError: a plugin among the settings cannot start.
        ImportError: trustme is not installed, which makes certificates.
        OSError: the journal cannot be written.
    """
    return Opening(Options(settings, hooks, history, record))


class Opening:
    """A broker that runs for the length of a block: what `broker` gives."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._block: AbstractContextManager[ThreadBroker] | None = None
        self._async_block: AbstractAsyncContextManager[Broker] | None = None

    def __enter__(self) -> ThreadBroker:
        """In a thread of its own.

        Raises:
            RuntimeError: in trio code; there it is `async with`.
        """
        if in_trio():
            raise RuntimeError("in trio, a broker is opened by `async with`")
        self._block = in_thread(self._options)
        return self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._block is not None
        return self._block.__exit__(kind, error, trace)

    async def __aenter__(self) -> Broker:
        """In trio, in the caller's own run. In asyncio, in a thread of its own."""
        self._async_block = (in_this_run if in_trio() else in_asyncio)(self._options)
        return await self._async_block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._async_block is not None
        return await self._async_block.__aexit__(kind, error, trace)


@asynccontextmanager
async def in_this_run(options: Options) -> AsyncGenerator[Broker, None]:
    async with opened(options) as running:
        broker = Broker(running, LocalPortal())
        with listed(broker, options):
            yield broker
            broker.check()
