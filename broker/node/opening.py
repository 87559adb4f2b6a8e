"""A node for the length of a block."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import trio

from trunkline.actors.exits import innermost
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.life import GRACE, NodeFailed, NodeLife
from trunkline.broker.node.parts import Node
from trunkline.broker.security import read_files
from trunkline.config.config import Config
from trunkline.config.store_place import NoStateFolder, make_store_folder, store_path
from trunkline.store import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from trunkline.broker.net.protocol import LayerFactory
    from trunkline.broker.node.kept import Kept
    from trunkline.broker.node.life import ControlSocket
    from trunkline.broker.node.storing import OpenedStore
    from trunkline.broker.shards.place import ShardPlace
    from trunkline.hooks.chain import Hooks
    from trunkline.store import Engine

    #: Opens the control socket of a broker; the flag says whether the broker requires it.
    OpenControl: TypeAlias = Callable[[Admin, bool], Awaitable[ControlSocket | None]]

__all__ = ["NodeFailed", "open_node"]


@asynccontextmanager
async def open_node(
    config: Config | None = None,
    hooks: Hooks | None = None,
    grace: float = GRACE,
    layers: Sequence[LayerFactory] = (),
    prepare: Callable[[Admin], None] | None = None,
    read: Callable[[], Config] | None = None,
    open_control: OpenControl | None = None,
    adopt: Kept | None = None,
    open_store: Callable[[], Engine] | None = None,
    place: ShardPlace | None = None,
) -> AsyncGenerator[Admin, None]:
    """Run a broker for the length of a block. At its end clients have `grace` seconds to close. `layers` are put on the
    transport of each connection, the first one at the bottom. `prepare` is called when everything works, before any
    client can connect. `read` reads the configuration anew, for a broker with a process of its own. `open_control`
    opens the control socket, where the configuration asks for one, `open_store` another store than the configuration's.
    `adopt` is what another node of this process has left. `place` is that of this broker among the shards that are one
    node together.

    Raises:
        ControlSocketError: the control socket is required and cannot be opened.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used.
        DeclaredStreamError: the store has other streams than the configuration declares.
        StoreError: the store cannot be opened or read.
        NodeFailed: what everything else rests on has failed; the block was cancelled.
    """
    config = config if config is not None else Config()
    open_engine = open_store or _store_opener(config, standalone=read is not None)
    files = read_files(config)
    opened = None if open_engine is None else await _opened(open_engine, config, place)
    node = Node(config, hooks, files, opened, layers, standalone=read is not None, place=place)
    life = NodeLife(node, grace, adopt)
    admin = Admin(node, life, read)

    async def ready() -> None:
        if prepare is not None:
            prepare(admin)
        if open_control is not None:
            await life.open_control(partial(open_control, admin))

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(life.run, ready)
            yield admin
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = innermost(group)
        raise error from error.__cause__


async def _opened(open_engine: Callable[[], Engine], config: Config, place: ShardPlace | None) -> OpenedStore:
    # imported here: few brokers inside another process have a store
    from trunkline.broker.node.storing import open_store

    if place is None:
        return await open_store(open_engine, config)
    from trunkline.broker.shards.stored_links import find_links

    return await open_store(open_engine, config, find_links)


def _store_opener(config: Config, *, standalone: bool) -> Callable[[], Engine] | None:
    """What opens the store that the configuration asks for, if it asks for one."""
    durability = config.durability(standalone=standalone)
    if durability == "memory":
        return None
    if config.store.path is None and not standalone:
        raise StoreUnavailable(
            "a broker inside another process needs a store.path: the default is a standalone broker's"
        )

    def open_engine() -> Engine:
        from trunkline.store.replacing import finish_what_was_begun
        from trunkline.store.sqlite import SqliteEngine

        settings = config.store
        try:
            path = store_path(settings, config.node)
            make_store_folder(settings, path)
        except NoStateFolder as error:
            raise StoreUnavailable(str(error)) from error
        finish_what_was_begun(path)
        return SqliteEngine(path, durability=durability, max_size=settings.max_size, verify=False)

    return open_engine
