"""The subscriptions of a router, for management: in pages, in the order of the filters.

A cursor is a plain value, the last entry of a page. So any time may pass between pages: an entry that exists all the
while comes exactly once, however much else changes.
"""

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Generic, NamedTuple

from sortedcontainers import SortedList

from trunkline.router.options import Options
from trunkline.router.target import Destination, S, Target


class ListedSubscription(NamedTuple):
    """One row of the listing."""

    filter: str
    client_id: str
    options: Options
    subscriber: Destination


class Listing(Generic[S]):
    """The filters of a router in order."""

    def __init__(self, targets: Callable[[str], list[Target[S]]]) -> None:
        """`targets` returns the targets of a filter."""
        self._targets = targets
        self._filters: SortedList[str] = SortedList()
        self.add = self._filters.add
        self.discard = self._filters.discard

    def __iter__(self) -> Iterator[str]:
        """All filters, in order. They may change in between."""
        page = self.filters(limit=1000)
        while page:
            yield from page
            page = self.filters(after=page[-1], limit=1000)

    def filters(self, after: str = "", limit: int = 100) -> list[str]:
        """The next filters behind `after`. The last of them is the cursor of the next page."""
        return list(islice(self._walk(after), limit))

    def subscriptions(self, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[ListedSubscription]:
        """The next subscriptions behind `after`, the filter and client id of the last one seen.

        Sorted by filter, then by client id. A page is a little longer than its limit where one client id appears twice,
        as it may while a session is taken over.
        """
        page: list[ListedSubscription] = []
        last, last_client = after
        if last:
            page = self._rows(last, last_client, limit)
        for filter in self._walk(last):
            if len(page) >= limit:
                break
            page += self._rows(filter, "", limit - len(page), first=True)
        return page

    def _walk(self, after: str) -> Iterator[str]:
        return self._filters.irange(after, inclusive=(False, True))

    def _rows(self, filter: str, after: str, limit: int, first: bool = False) -> list[ListedSubscription]:
        targets = self._targets(filter)
        if not first:
            targets = [target for target in targets if target.subscriber.client_id > after]
        rows: list[Target[S]] = nsmallest(limit, targets, key=lambda target: target.subscriber.client_id)
        if len(rows) < len(targets):
            final = rows[-1].subscriber.client_id
            known = {id(target) for target in rows}
            rows += [each for each in targets if each.subscriber.client_id == final and id(each) not in known]
        return [ListedSubscription(filter, row.subscriber.client_id, row.options, row.subscriber) for row in rows]
