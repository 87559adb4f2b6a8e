"""What joins the shards of a node that are processes of one machine: sockets in a folder that is the node's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.link_sockets import LinkSockets
from trunkline.broker.shards.passage_listener import PassageListener
from trunkline.broker.shards.passage_socket import SocketPassage

if TYPE_CHECKING:
    from pathlib import Path

    from trunkline.broker.shards.homes import Homes
    from trunkline.broker.shards.place import OwnShard


class ProcessLinks:
    """Of one shard."""

    def __init__(self, folder: Path, homes: Homes) -> None:
        self._folder = folder
        self.hand_over = ShardHandOver(homes)

    async def join(self, shards: OwnShard) -> None:
        """
        Raises:
            OSError: its sockets cannot be made.
        """
        number, net = shards.place.number, shards.net
        assert net.poller is not None, "processes share listeners where there is a poller"
        links = LinkSockets(number, self._folder, shards.peers, net.poller, net.scheduler)
        passages = PassageListener(self._path(number), net, shards.take)
        passages.hold()
        shards.when_serving(passages.go_on)
        try:
            for other in shards.peers:
                self.hand_over.passages[other] = SocketPassage(self._path(other), net.poller, net.scheduler)
            await links.run()
        finally:
            self.hand_over.close()
            passages.close()

    def _path(self, shard: int) -> str:
        return str(self._folder / f"{shard}.passage")
