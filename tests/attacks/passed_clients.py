"""A broker that takes itself for three shards: clients of one listener are handed over to another one of it, by a
socket or in memory, unless their home is here."""

import errno
import os
import socket
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from trunkline.broker.connection.hand_over import Sharing
from trunkline.broker.connection.mqtt import Mqtt
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.node.parts import Node
from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.passage_listener import PassageListener
from trunkline.broker.shards.passage_socket import SocketPassage
from trunkline.broker.shards.passages import MemoryPassage

HERE, BY_SOCKET, IN_MEMORY = range(3)


class Shards:
    def __init__(self, node: Node, accepting: str, serving: str, path: Path) -> None:
        """`accepting` and `serving` are names of listeners."""
        assert node.poller is not None
        self._node = node
        self._serving = serving
        self._path = str(path)
        self.hand_over = ShardHandOver(Homes(HERE, dealt(3)))
        self._services: Any = node.listeners._services  # pyright: ignore[reportPrivateUsage]
        self._listening = PassageListener(self._path, self._services, self._take)
        self.hand_over.passages = {
            BY_SOCKET: SocketPassage(self._path, node.poller, node.scheduler),
            IN_MEMORY: MemoryPassage(self._take_as_is, node.scheduler),
        }
        mqtt = Mqtt(node.services, node.sessions, node.failures, Sharing(self.hand_over, node.poller))
        for listener in node.listeners:
            if listener.settings.label == accepting:
                listener.acceptor.protocol = mqtt.at(node.config, listener.settings)

    def _take(self, passed: PassedConnection) -> None:
        self._node.listeners.take(replace(passed, listener=self._serving))

    def _take_as_is(self, passed: PassedConnection) -> None:
        """The layers of the testing kit have it relayed; here it is as if it were the client's own."""
        self._take(replace(passed, relayed=False))

    def id(self, home: int) -> str:
        return next(name for n in count() if self.hand_over.home_of(name := f"passed {n}") == home)

    def end(self) -> None:
        """As the process of another shard."""
        self._listening.close()

    def begin(self) -> None:
        self._listening = PassageListener(self._path, self._services, self._take)

    def close(self) -> None:
        self.hand_over.close()
        self._listening.close()


def run_out_of_descriptors(patch: pytest.MonkeyPatch, path: str) -> None:
    """Once where another process comes, and once where it hands something over."""
    accept, recvmsg = socket.socket.accept, socket.socket.recvmsg
    refuses = ["accept", "recvmsg"]

    def accepting(sock: socket.socket) -> Any:
        if sock.getsockname() == path and "accept" in refuses:
            refuses.remove("accept")
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    def receiving(sock: socket.socket, *args: Any) -> Any:
        data, ancillary, flags, address = recvmsg(sock, *args)
        if ancillary and "recvmsg" in refuses:
            refuses.remove("recvmsg")
            for *_, content in ancillary:
                os.close(int.from_bytes(content[:4], "little"))
            return data, [], flags | socket.MSG_CTRUNC, address
        return data, ancillary, flags, address

    patch.setattr(socket.socket, "accept", accepting)
    patch.setattr(socket.socket, "recvmsg", receiving)
