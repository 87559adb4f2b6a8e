"""Requests to JetStream over a plain socket, of the broker and of real servers alike."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.nats.servers import NatsServer

PATIENCE = 30
#: Values that differ from one run to the next, and what a server says of itself.
_VOLATILE = {
    "bytes",
    "created",
    "ts",
    "first_ts",
    "last_ts",
    "time",
    "cluster",
    "pause_remaining",
    "last_active",
    "active",
    "_nats.ver",
}


class Came(NamedTuple):
    subject: str
    reply: str
    block: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def status(self) -> str:
        return self.block.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").decode().strip()


class Asking:
    """A client with one subscription, `r.>`."""

    def __init__(self, server: NatsServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self._file = self._socket.makefile("rb")
        self.info = json.loads(self._file.readline()[5:])
        self._number = 0
        self.say(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}', b"SUB r.> 1")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def say(self, *lines: bytes) -> None:
        self._socket.sendall(b"".join(line + b"\r\n" for line in lines))

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        to = f"{subject} {reply}".rstrip().encode()
        if headers:
            block = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n"
            self.say(b"HPUB %s %d %d" % (to, len(block), len(block) + len(payload)), block + payload)
        else:
            self.say(b"PUB %s %d" % (to, len(payload)), payload)

    def came(self) -> Came:
        """The next message."""
        while not (line := self._file.readline()).startswith((b"MSG ", b"HMSG ")):
            assert line, "closed"
            if line == b"PING\r\n":
                self.say(b"PONG")
            assert not line.startswith(b"-ERR"), line
        parts = line.split()
        has_block = line.startswith(b"HMSG")
        size, head = int(parts[-1]), int(parts[-2]) if has_block else 0
        data = self._file.read(size + 2)[:-2]
        reply = parts[3].decode() if len(parts) == (6 if has_block else 5) else ""
        return Came(parts[1].decode(), reply, data[:head], data[head:])

    def pinged(self) -> None:
        """All that was said before is handled."""
        self.say(b"PING")
        line = self._file.readline()
        assert line == b"PONG\r\n", line

    def ask(self, subject: str, payload: Any = b"", headers: dict[str, str] | None = None) -> Came:
        self._number += 1
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.publish(subject, data, f"r.{self._number}", headers)
        return self.came()

    def api(self, verb: str, payload: Any = b"") -> dict[str, Any]:
        """The answer of the API, of which an error is a part."""
        found: dict[str, Any] = self.ask(f"$JS.API.{verb}", payload).json
        return found


def plain(said: Any) -> Any:
    """An answer without what differs from one run to the next, and without what is zero or false: an older server does
    not say so."""
    if isinstance(said, dict):
        found = {key: plain(value) for key, value in said.items() if key not in _VOLATILE and "_nats." not in key}
        return {key: value for key, value in found.items() if value not in (0, "", None, {}, [], "none")}
    if isinstance(said, list):
        return [plain(each) for each in said]
    return re.sub(r"^[A-Za-z0-9]{8}$|^ephemeral-\d+$", "NAMED", said) if isinstance(said, str) else said
