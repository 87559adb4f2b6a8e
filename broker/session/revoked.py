"""Subscriptions that a client lost because it may no longer read there.

Messages that came by them wait in the queue, in the window or in the mailbox, and are not for the client any more,
unless a subscription that it still has matches their topic as well.
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
        self._denied: FilterTable[bool] = FilterTable()
        #: One filter may be subscribed to plainly and in any number of groups.
        self._kept: FilterTable[set[str]] = FilterTable()
        #: What was taken away.
        self.filters: set[str] = set()

    def deny(self, filter: str) -> None:
        self.filters.add(filter)
        self._denied.set(plain_filter(filter), True)

    def keep(self, filter: str) -> None:
        self._kept.setdefault(plain_filter(filter), set()).add(filter)

    def forget(self, filter: str) -> None:
        """It was kept until now."""
        plain = plain_filter(filter)
        kept = self._kept.get(plain)
        if kept is not None:
            kept.discard(filter)
            if not kept:
                self._kept.remove(plain)

    def __iter__(self) -> Iterator[str]:
        return iter(self.filters)

    def concerns(self, topic: str) -> bool:
        """Was it only by lost subscriptions that a message of this topic came?"""
        return bool(self._denied.match(topic)) and not self._kept.match(topic)
