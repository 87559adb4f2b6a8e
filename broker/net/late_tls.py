"""TLS that a client begins at once, or when it has been greeted in clear, as servers of NATS do it.

A client that begins with the handshake is greeted inside of TLS. One that says nothing for a while gets in clear what
the broker has to say first, INFO, and begins TLS then. Nothing else leaves in clear, and nothing that comes in clear is
passed on: from the client's first byte on it is TLS, or the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from trunkline.broker.net.tls import TlsLayer

if TYPE_CHECKING:
    from trunkline.actors import Actor, Timer
    from trunkline.broker.net.transport import Receiver


class LateTlsLayer(TlsLayer):
    __slots__ = ("_greeting",)

    _greeting: Timer

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        wait = self._server.context.settings.greets_after
        self._greeting = owner.call_at(trio.current_time() + wait, self._greet)
        super().start(receiver, owner)

    def _greet(self) -> None:
        """The client waits for us: so far, nothing has come that could have been answered."""
        greeting = b"".join(self._plain)
        self._plain.clear()
        if greeting:
            self.below.send(greeting)

    def _feed_handshake(self, data: bytes) -> None:
        self._greeting.discard()
        super()._feed_handshake(data)

    def _stop(self) -> None:
        self._greeting.discard()
        super()._stop()
