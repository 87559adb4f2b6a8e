"""A client's bytes on their way between the layers of its connection, which stay here, and the shard that serves it.

Each side is read only while the other takes what came: nothing waits here but what one read has brought.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.net.transport import Ended, Failed, OutputBlocked, OutputDrained

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.net.transport import Event, Transport


class Relay:
    """Both transports are started, and this is their receiver."""

    __slots__ = ("_client", "_home", "_is_left", "_is_over", "_linger", "_over")

    def __init__(
        self, client: Transport, home: Transport, linger: Callable[[], None], over: Callable[[], None]
    ) -> None:
        """`linger` is called when the home has ended and the client may read what it was sent, `over` when nothing is
        left to do."""
        self._client = client
        self._home = home
        self._linger = linger
        self._over = over
        #: The client, or its home, sends nothing more.
        self._is_left = False
        self._is_over = False

    def from_client(self, event: Event) -> None:
        if isinstance(event, bytes):
            if not self._is_over:
                self._home.send(event)
        elif isinstance(event, OutputBlocked):
            self._home.pause()
        elif isinstance(event, OutputDrained):
            self._home.resume()
        elif isinstance(event, Failed):
            self.end()  # the layer has ended its output, and nothing more comes but the end
        elif self._is_over:
            self._over()
        else:
            self._is_left = True
            self.end()

    def from_home(self, event: Event) -> None:
        if isinstance(event, bytes):
            self._client.send(event)
        elif isinstance(event, OutputBlocked):
            self._client.pause()
        elif isinstance(event, OutputDrained):
            self._client.resume()
        elif isinstance(event, Ended) and not self._is_over:
            self._is_over = True
            if self._is_left:
                self._over()
            else:
                self._client.resume()  # for its end
                self._client.finish()
                self._linger()

    def end(self) -> None:
        """For its home, the client ends the connection. What the home still says reaches the client."""
        self._home.resume()  # for its answer, which ends this
        self._home.finish()

    def close(self) -> None:
        self._home.close()
