"""Routes by topic, remembered until a change of subscriptions can have touched them."""

from collections.abc import Callable
from itertools import islice
from typing import Generic

from trunkline.router.target import Route, S
from trunkline.router.topictree import PATIENCE, TopicTree

#: The number of routes that are dropped at a time when the cache is full.
_BATCH = 256
#: A change of a filter drops at most this many routes one by one; beyond that the whole cache is cleared, which is
#: quick.
_DROPS = 512
#: Branches of the index that changes of filters may search without finding a route, before the cache is cleared as
#: well: one for each route remembered since, up to this number. So changes never cost more than the routes that they
#: invalidate.
_CREDIT = 4096
#: The number of topics looked up once that are remembered when the cache is full.
_ASKED = 65_536


def _cost(topic: str) -> int:
    """The weight of a topic, roughly in units of 300 bytes: its nodes in the index, and its name."""
    return 1 + topic.count("/") + (len(topic) >> 8)


class RouteCache(dict[str, Route[S]], Generic[S]):
    """A dict that computes missing entries: `cache[topic]` always answers, and a hit runs no Python code.

    It is bounded by the weight of its topics, so that long and deep topic names cannot fill the memory. When it is
    full, a topic that is asked for a second time takes the place of the oldest. A change of a wildcard filter drops the
    topics that match it, which an index finds: a client that subscribes to `devices/17/+` leaves the routes of all
    other devices alone. Where finding them would take long, everything goes.
    """

    __slots__ = ("_asked", "_credit", "_index", "_resolve", "capacity", "cost")

    def __init__(self, resolve: Callable[[str], Route[S]], capacity: int) -> None:
        super().__init__()
        self._resolve = resolve
        self._index = TopicTree()
        self._asked: set[int] = set()
        self._credit = _CREDIT
        self.capacity = capacity
        self.cost = 0

    def __missing__(self, topic: str) -> Route[S]:
        route = self._resolve(topic)
        cost = _cost(topic)
        if self.cost + cost > self.capacity:
            # Topics that are used once must not push out those that are used all the time.
            key = hash(topic)
            if key not in self._asked:
                if len(self._asked) >= _ASKED:
                    self._asked.clear()
                self._asked.add(key)
                return route
            self._asked.discard(key)
            if cost * 64 > self.capacity:
                return route
            while self and self.cost + cost > self.capacity:
                for old in list(islice(self, _BATCH)):
                    self.drop(old)
        self.cost += cost
        self[topic] = route
        self._index.add(topic)
        if self._credit < _CREDIT:
            self._credit += 1
        return route

    def drop(self, topic: str) -> None:
        if self.pop(topic, None) is not None:
            self.cost -= _cost(topic)
            self._index.discard(topic)

    def drop_matching(self, filter: str) -> None:
        """Drop the routes of all topics that match a filter with wildcards."""
        if not self:
            return
        touched: list[str] = []
        looked = 0
        for topic in self._index.match(filter):
            if topic is not None:
                touched.append(topic)
            else:
                looked += PATIENCE
            if len(touched) > _DROPS or looked > self._credit + len(touched):
                self.clear()
                return
        self._credit -= max(0, looked - len(touched))
        for topic in touched:
            self.drop(topic)

    def clear(self) -> None:
        super().clear()
        self._index = TopicTree()
        self._credit = _CREDIT
        self.cost = 0
