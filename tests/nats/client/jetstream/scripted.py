"""A server with JetStream that does what a test says."""

import json
from typing import Any

from tests.nats.client.scripted import Peer
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.operations import PING, PONG, Publish, Subscribe, Unsubscribe

_API = "$JS.API."


class JetStreamPeer:
    """One stream, `orders`. Consumers are there when they are created."""

    def __init__(self) -> None:
        #: By name: the configuration.
        self.consumers: dict[str, dict[str, Any]] = {}
        #: Somebody else creates these in the moment between a look and the creation.
        self.races: dict[str, dict[str, Any]] = {}
        #: What was asked for, in order.
        self.order: list[str] = []
        self.bodies: dict[str, Any] = {}
        self.sids: dict[str, bytes] = {}
        self._subjects: dict[bytes, str] = {}
        self._peer: Peer | None = None

    async def story(self, peer: Peer) -> None:
        self._peer = peer
        await peer.welcome(max_payload=1 << 20)
        while (operation := await peer.next()) is not None:
            if operation is PING:
                await peer.send(PONG.line)
            elif isinstance(operation, Subscribe):
                subject = operation.subject.decode()
                self.order.append(f"SUB {subject} {operation.queue.decode()}".strip())
                self.sids[subject], self._subjects[operation.sid] = operation.sid, subject
            elif isinstance(operation, Unsubscribe):
                self.order.append(f"UNSUB {self._subjects[operation.sid]}")
            elif isinstance(operation, Publish):
                await self._published(peer, operation)

    async def send(self, data: bytes) -> None:
        assert self._peer is not None
        await self._peer.send(data)

    async def _published(self, peer: Peer, operation: Publish) -> None:
        subject = operation.subject.decode()
        what = subject.removeprefix(_API)
        self.order.append(what)
        if subject.startswith(_API):
            body = self.bodies[what] = json.loads(operation.payload or b"{}")
            if operation.reply:
                answer = json.dumps(self._answer(what.split("."), body)).encode()
                sid = self.sids[f"{operation.reply.decode().rpartition('.')[0]}.*"]
                await peer.send(encoder.deliver(operation.reply, sid, answer))

    def _answer(self, what: list[str], body: Any) -> dict[str, Any]:
        if what[:2] == ["STREAM", "NAMES"]:
            return {"total": 1, "offset": 0, "limit": 1024, "streams": ["orders"]}
        assert what[0] == "CONSUMER"
        name = what[-1]
        if what[1] == "INFO":
            return self._info(name) if name in self.consumers else _error(404, 10014, "consumer not found")
        if what[1] == "DELETE":
            del self.consumers[name]
            return {"success": True}
        name = name if what[1] == "DURABLE" else f"made{len(self.consumers)}"
        if name in self.races:
            self.consumers[name] = self.races[name]
            return _error(400, 10148, "consumer already exists")
        self.consumers[name] = body["config"]
        return self._info(name)

    def _info(self, name: str) -> dict[str, Any]:
        nothing = {"consumer_seq": 0, "stream_seq": 0}
        config = self.consumers[name]
        return {
            "stream_name": "orders",
            "name": name,
            "config": config,
            "delivered": nothing,
            "ack_floor": nothing,
        }


def wires(sid: bytes, *sequences: int) -> bytes:
    """Messages of a consumer, with these sequences."""
    return b"".join(
        encoder.deliver(b"orders.new", sid, b"x", b"$JS.ACK.orders.c.1.%d.%d.1700000000000000000.0" % (each, each))
        for each in sequences
    )


def _error(code: int, err_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": err_code, "description": description}}
