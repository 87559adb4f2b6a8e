"""The listeners of a node, by name. What is changed here lasts until the node ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.net.listener import State
from trunkline.broker.net.listeners import ListenError
from trunkline.broker.views import listener_view
from trunkline.config.key_path import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.broker.net.listener import Listener
    from trunkline.broker.net.listeners import Listeners
    from trunkline.broker.node.supervisors import Supervisors
    from trunkline.broker.views import ListenerView
    from trunkline.config.listener_settings import ListenerSettings


class NamedListeners:
    """Each method that takes a name raises LookupError if no listener has it."""

    def __init__(self, listeners: Listeners, supervisors: Supervisors) -> None:
        self._listeners = listeners
        self._supervisors = supervisors

    def __iter__(self) -> Iterator[ListenerView]:
        """In the order in which they were opened."""
        return map(listener_view, list(self._listeners))

    async def add(self, settings: ListenerSettings) -> ListenerView:
        """
        Raises:
            ListenError: its address cannot be listened on.
            SecurityError: its certificates or keys cannot be used.
        """
        return listener_view(await self._listeners.open(settings))

    def pause(self, name: str) -> ListenerView:
        """Accept no connections: new ones wait in the system's backlog.

        Raises:
            ListenError: it is closed.
        """
        listener = self._find(name)
        if listener.state is State.CLOSED:
            raise ListenError(f"{name!r} is closed")
        listener.pause()
        return listener_view(listener)

    async def resume(self, name: str) -> ListenerView:
        """Accept connections again, after `pause` and after `drain`.

        Raises:
            ListenError: its address cannot be listened on any more.
        """
        listener = self._find(name)
        if listener.state is State.CLOSED:
            await self._listeners.listen(listener)
        listener.resume()
        return listener_view(listener)

    def drain(self, name: str, rate: int) -> ListenerView:
        """Close the sockets, and disconnect so many clients in a second; with 0 all at once."""
        listener = self._find(name)
        listener.close()
        self._supervisors.start_task(listener.disconnect_clients, rate)
        return listener_view(listener)

    def remove(self, name: str) -> None:
        """Close the sockets and disconnect the clients at once. Their sessions stay."""
        self._listeners.remove(self._find(name))

    def _find(self, name: str) -> Listener:
        for listener in self._listeners:
            if listener.settings.label == name:
                return listener
        raise LookupError(f"no listener {name!r}{nearest(name, [each.settings.label for each in self._listeners])}")
