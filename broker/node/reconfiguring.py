"""Another configuration takes the place of the one that a node runs with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from trunkline.broker.security import read_files
from trunkline.config.config import reloaded

if TYPE_CHECKING:
    from trunkline.broker.node.parts import Node
    from trunkline.config.config import Config


class Reconfiguring:
    def __init__(self, node: Node) -> None:
        self._node = node
        #: Is held by a reload: one is applied whole before the next is read.
        self.lock = trio.Lock()

    def reload(self, config: Config | None = None) -> None:
        """Read the files of passwords, access rules and TLS again, perhaps as another configuration names them, which
        holds from now on: for clients that are connected too, but for what their CONNACK said. Decisions made under
        the old rules are forgotten; connections stay.

        Raises:
            SecurityError: a file cannot be used; nothing has changed.
        """
        node = self._node
        former, config = node.config, config or node.config
        use, files = node.listeners.read(config), read_files(config)
        node.security.apply(config, files)
        node.services.config = config
        node.services.access.configure(config)
        node.services.pubsub.configure(config)
        node.sessions.making.configure()
        node.plugin_stores.max_bytes = config.store.max_plugin_bytes
        if node.has_trace:
            node.trace.configure(config.trace)
        if node.storing is not None:
            node.storing.configure(former, config)
        if node.poller is not None:
            node.poller.busy_poll = node.busy_poll
        use()
        node.clients.forget_decisions()

    async def apply(self, new: Config) -> list[str]:
        """Apply what can be applied of another configuration, but for the plugins and the log. Returns what went wrong
        with single listeners.

        Raises:
            SecurityError: a file cannot be used; nothing has changed.
        """
        former = self._node.config
        self.reload(reloaded(former, new))
        await self._node.periodic.follow()
        return await self._node.listeners.change(former, self._node.config)
