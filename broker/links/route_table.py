"""The routes of one end of a link, as the other end has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.links.frames import RouteChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.links.frames import LinkRoute

#: Filters in one frame.
FILTERS_AT_ONCE: Final = 1000


class ToldRoutes:
    """Tells the other end: all of them on a new connection, and from then on what changes."""

    def __init__(self) -> None:
        self._routes: dict[str, LinkRoute] = {}
        #: What the other end does not know yet; None: there is no connection.
        self._untold: dict[str, None] | None = None
        #: Nothing of this connection was told.
        self._begins = False
        #: All that there was at the beginning, as far as it is not told.
        self._first: list[str] = []
        #: Frames of this connection that were sent, and that the other end uses.
        self._number = self._used = 0
        #: Whoever waits until the other end uses what is told next, and what was told, by number.
        self._untold_waiting: list[Callable[[], None]] = []
        self._told_waiting: list[tuple[int, Callable[[], None]]] = []

    def set(self, filter: str, route: LinkRoute | None) -> None:
        """None: nobody wants it any more."""
        if route == self._routes.get(filter):
            return
        if route is None:
            del self._routes[filter]
        else:
            self._routes[filter] = route
        if self._untold is not None:
            self._untold[filter] = None

    def when_used(self, action: Callable[[], None]) -> None:
        """Call it when the other end uses what is set; at once, if there is none."""
        if self.has_more:
            self._untold_waiting.append(action)
        elif self._number > self._used:
            self._told_waiting.append((self._number, action))
        else:
            action()

    def begin(self) -> None:
        """A connection is up."""
        self._untold, self._begins = {}, True
        self._first = list(self._routes)[::-1]

    def end(self) -> None:
        """It is lost."""
        self._untold, self._begins, self._first = None, False, []
        self._number = self._used = 0
        waiting = [*[action for _, action in self._told_waiting], *self._untold_waiting]
        self._told_waiting.clear()
        self._untold_waiting.clear()
        for action in waiting:
            action()

    @property
    def has_more(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._untold or self._first or self._begins)

    def take(self) -> RouteChanges | None:
        """The next frame, if there is something to tell."""
        if self._untold is None:
            return None
        if self._begins or self._first:
            begins, self._begins = self._begins, False
            some = [self._first.pop() for _ in range(min(FILTERS_AT_ONCE, len(self._first)))]
            self._number += 1
            known = {filter: route for filter in some if (route := self._routes.get(filter)) is not None}
            return self._told(RouteChanges(self._number, begins, not self._first, known))
        if not self._untold:
            return None
        some = list(self._untold)[:FILTERS_AT_ONCE]
        for filter in some:
            del self._untold[filter]
        self._number += 1
        return self._told(
            RouteChanges(self._number, False, False, {filter: self._routes.get(filter) for filter in some})
        )

    def _told(self, frame: RouteChanges) -> RouteChanges:
        if not self.has_more:
            self._told_waiting += [(self._number, action) for action in self._untold_waiting]
            self._untold_waiting.clear()
        return frame

    def used(self, number: int) -> None:
        """The other end uses all up to this frame."""
        self._used = number
        while self._told_waiting and self._told_waiting[0][0] <= number:
            self._told_waiting.pop(0)[1]()


class KnownRoutes:
    """Knows what the other end wants. What was known is used until its next process has told all."""

    def __init__(self) -> None:
        self._routes: dict[str, LinkRoute] = {}
        #: While all are told again: what was not told yet.
        self._left: dict[str, None] | None = None
        #: Whether all have been told, if it was by an earlier process.
        self.is_whole = False

    def __len__(self) -> int:
        return len(self._routes)

    def take(self, frame: RouteChanges) -> Mapping[str, LinkRoute | None]:
        """What is different now."""
        if frame.begins:
            self._left = dict.fromkeys(self._routes)
        different: dict[str, LinkRoute | None] = {}
        for filter, route in frame.changes.items():
            if self._left is not None:
                self._left.pop(filter, None)
            if route != self._routes.get(filter):
                different[filter] = route
        if frame.ends and self._left is not None:
            different |= dict.fromkeys(self._left)
            self._left, self.is_whole = None, True
        for filter, route in different.items():
            if route is None:
                del self._routes[filter]
            else:
                self._routes[filter] = route
        return different
