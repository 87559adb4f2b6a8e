"""Subscriptions that a client lost because it may no longer receive their messages. Messages that came by them may wait
in the queue, in the window or in the mailbox. They are not delivered any more, unless another subscription of the
client matches their topic as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.mqtt.topics import plain_filter
from trunkline.router.table import FilterTable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Revoked:
    __slots__ = ("_denied", "_kept", "filters")

    def __init__(self) -> None:
        self._denied: FilterTable[str] = FilterTable()
        #: One filter may be subscribed to plainly and in any number of groups.
        self._kept: FilterTable[set[str]] = FilterTable()
        #: The revoked subscriptions.
        self.filters: set[str] = set()

    def deny(self, filter: str) -> None:
        self.filters.add(filter)
        plain = plain_filter(filter)
        self._denied.set(plain, plain)

    def keep(self, filter: str) -> None:
        self._kept.setdefault(plain_filter(filter), set()).add(filter)

    def forget(self, filter: str) -> None:
        """Revoke a subscription that the client has had until now."""
        plain = plain_filter(filter)
        kept = self._kept.get(plain)
        if kept is not None:
            kept.discard(filter)
            if not kept:
                self._kept.remove(plain)

    def __iter__(self) -> Iterator[str]:
        return iter(self.filters)

    def concerns(self, topic: str) -> bool:
        """Whether a message of this topic came only by revoked subscriptions."""
        return bool(self._denied.match(topic)) and not self._kept.match(topic)
