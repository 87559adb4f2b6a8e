"""Topic filters to subscribers.

Subscriptions without wildcards stand in a dict, those with wildcards in a trie; shared ones in a second pair of the
same. Routes are remembered by topic: `match` is a dict lookup until a subscription changes that can touch the topic.

Nothing here is locked. One writer subscribes and unsubscribes, everyone may match in between.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from random import Random
from typing import Any, Generic

from sortedcontainers import SortedList

from trunkline.mqtt.topics import parse_shared
from trunkline.router.cache import RouteCache
from trunkline.router.fanout import Entry, Fanout, Merges
from trunkline.router.options import Options
from trunkline.router.shared import Group, ShareStrategy, flatten, make_group
from trunkline.router.table import FilterTable, has_wildcard
from trunkline.router.target import Receivers, Route, S, Sink, Target, make_target

_NOBODY: Receivers[Any] = Receivers()
_NOWHERE: Route[Any] = Route(_NOBODY)
_DEFAULT_CACHE = 262_144
#: Of up to so many filters, the routes are dropped one by one.
_FEW = 100


class Router(Generic[S]):
    """The subscriptions of one node."""

    def __init__(
        self,
        *,
        strategy: ShareStrategy | str = ShareStrategy.ROUND_ROBIN,
        strategies: Mapping[str, ShareStrategy | str] | None = None,
        seed: int | None = None,
        cache_capacity: int = _DEFAULT_CACHE,
    ) -> None:
        self.choose(strategy, strategies or {})
        self._random = Random(seed)
        self._plain: FilterTable[Entry[S]] = FilterTable()
        self._shared: FilterTable[Group[S] | dict[str, Group[S]]] = FilterTable()
        self._sinks: FilterTable[tuple[Sink, ...]] = FilterTable()
        self._merges: Merges[S] = Merges()
        self._serial = 0
        #: Routes by topic. `cache[topic]` is `match(topic)`.
        self.cache: RouteCache[S] = RouteCache(self._resolve, cache_capacity)
        #: The route of a topic. It is the dict's own lookup, so that a known topic runs no Python code.
        self.match: Callable[[str], Route[S]] = self.cache.__getitem__
        #: All of them in order, for management.
        self._filters: SortedList[str] = SortedList()
        #: Number of subscriptions, shared ones included.
        self.subscriptions = 0
        #: Number of shared subscriptions.
        self.shared_subscriptions = 0
        #: Number of shared groups; a name counts once for each filter.
        self.groups = 0

    def choose(self, strategy: ShareStrategy | str, strategies: Mapping[str, ShareStrategy | str]) -> None:
        """How shared groups pick a member, and the exceptions by group name. A group is made with its strategy, when it
        gets its first member, and keeps it."""
        self.strategy = ShareStrategy(strategy)
        self.strategies = {name: ShareStrategy(other) for name, other in strategies.items()}

    @property
    def filters(self) -> int:
        """Number of different filters; a shared one counts once for all its groups."""
        return len(self._plain) + len(self._shared)

    def subscribe(self, subscriber: S, filter: str, options: Options, *, behind: bool = False) -> bool:
        """True if the subscription is new; else its options are replaced. One that is new can begin `behind`, see
        `set_behind`."""
        if filter[:1] == "$" and (parsed := parse_shared(filter)) is not None:
            return self._join(subscriber, *parsed, filter, options)
        self._serial += 1
        target = make_target(subscriber, options, self._serial, behind=behind)
        entry = self._plain.setdefault(filter, target)
        old = None
        if entry is target:
            self._filters.add(filter)
        else:
            old = self._find(entry, subscriber)
            if old is not None:
                if old.options == options:
                    return False
                # It keeps its place in the order of subscription.
                target = make_target(subscriber, options, old.serial, behind=old.behind)
            self._replace(filter, entry, old, target)
        self._changed(filter)
        self.subscriptions += old is None
        return old is None

    def _replace(self, filter: str, entry: Entry[S], old: Target[S] | None, target: Target[S]) -> None:
        """Another target in the entry of this filter, in place of one of the same subscriber if it has one."""
        self._merges.forget(entry)
        if isinstance(entry, Fanout):
            entry.snapshot = None
            entry.targets[target.subscriber] = target
        else:
            self._plain.set(filter, target if entry is old else Fanout(entry, target))

    def unsubscribe(self, subscriber: S, filter: str) -> bool:
        """False if there was no such subscription."""
        if filter[:1] == "$" and (parsed := parse_shared(filter)) is not None:
            return self._leave(subscriber, *parsed, filter)
        entry = self._plain.get(filter)
        if entry is None or self._find(entry, subscriber) is None:
            return False
        self._merges.forget(entry)
        if isinstance(entry, Fanout):
            del entry.targets[subscriber]
            entry.snapshot = None
            if len(entry.targets) == 1:
                self._plain.set(filter, next(iter(entry.targets.values())))
        else:
            self._plain.remove(filter)
            self._filters.discard(filter)
        self._changed(filter)
        self.subscriptions -= 1
        return True

    def refresh(self, subscriber: S, filters: Sequence[str]) -> None:
        """The subscriber, which has subscribed to these filters, has become durable."""
        if len(filters) > _FEW:
            self.cache.clear()
        for filter in filters:
            group, entry = self.group(filter), self._plain.get(filter)
            if group is not None:
                group.refresh(subscriber)
            if entry is not None:
                self._merges.forget(entry)
            if isinstance(entry, Fanout):
                entry.snapshot = None
            if len(filters) <= _FEW:
                self._changed(filter if group is None else group.filter)

    def target(self, subscriber: S, filter: str) -> Target[S] | None:
        """Of a subscription that is not shared, if it exists."""
        return self._find(self._plain.get(filter), subscriber)

    def set_behind(self, subscriber: S, filter: str, *, behind: bool) -> None:
        """Say of a subscription, if it exists and is not shared, whether its subscriber gets messages of QoS 1 and 2
        later, from a sink of the filter, or at once."""
        entry = self._plain.get(filter)
        old = self._find(entry, subscriber)
        if entry is not None and old is not None and old.behind is not behind:
            self._replace(filter, entry, old, make_target(subscriber, old.options, old.serial, behind=behind))
            self._changed(filter)

    def add_sink(self, filter: str, sink: Sink) -> None:
        self._sinks.set(filter, (*(self._sinks.get(filter) or ()), sink))
        self._changed(filter)

    def remove_sink(self, filter: str, sink: Sink) -> None:
        left = tuple([each for each in self._sinks.get(filter) or () if each is not sink])
        if left:
            self._sinks.set(filter, left)
        else:
            self._sinks.remove(filter)
        self._changed(filter)

    def has_receivers(self, filter: str) -> bool:
        """Is there a sink of a filter that may refuse messages?"""
        return any(sink.receiver for sink in self._sinks.get(filter) or ())

    def subscription(self, subscriber: S, filter: str) -> Options | None:
        """The options of a subscription, if it exists."""
        if filter[:1] == "$" and parse_shared(filter) is not None:
            group = self.group(filter)
            found: Target[S] | None = None if group is None else group.member(subscriber)
        else:
            found = self._find(self._plain.get(filter), subscriber)
        return None if found is None else found.options

    def group(self, filter: str) -> Group[S] | None:
        """The group of a shared filter (`$share/group/filter`), if it has members."""
        parsed = parse_shared(filter)
        if parsed is None:
            return None
        name, inner = parsed
        entry = self._shared.get(inner)
        if isinstance(entry, dict):
            return entry.get(name)
        return entry if entry is not None and entry.name == name else None

    def targets(self, filter: str) -> list[Target[S]]:
        """The subscriptions of one filter, as they were made; of a shared filter, the members of its group."""
        if filter[:1] == "$" and parse_shared(filter) is not None:
            group = self.group(filter)
            return [] if group is None else list(group)
        entry = self._plain.get(filter)
        if entry is None:
            return []
        return [entry] if isinstance(entry, Target) else list(entry.targets.values())

    def count(self, filter: str) -> int:
        """How many subscriptions a filter has; a shared one, how many members its group."""
        if filter[:1] == "$" and parse_shared(filter) is not None:
            group = self.group(filter)
            return 0 if group is None else len(group)
        entry = self._plain.get(filter)
        return len(entry.targets) if isinstance(entry, Fanout) else int(entry is not None)

    def page(self, after: str = "", limit: int = 100) -> list[str]:
        """The next filters behind `after`, in order. However much changes between two pages, what is there all the
        while comes exactly once."""
        return list(islice(self._filters.irange(after, inclusive=(False, True)), limit))

    def all(self) -> Iterator[tuple[str, Target[S]]]:
        """All subscriptions, by filter and in the order of subscription. They may change in between."""
        page = self.page(limit=1000)
        while page:
            for filter in page:
                for target in self.targets(filter):
                    yield filter, target
            page = self.page(page[-1], limit=1000)

    def _join(self, subscriber: S, name: str, inner: str, filter: str, options: Options) -> bool:
        group: Group[S] | None = self.group(filter)
        if group is None:
            strategy = self.strategies.get(name, self.strategy)
            group = make_group(strategy, name, inner, self._random)
            entry = self._shared.get(inner)
            if entry is None:
                self._shared.set(inner, group)
            elif isinstance(entry, dict):
                entry[name] = group
            else:
                self._shared.set(inner, {entry.name: entry, name: group})
            self.groups += 1
            self._filters.add(filter)
            self._changed(inner)
        # Routes hold the group, not its members: they need no change, except for the first durable one.
        was_durable = group.durable
        new = group.join(subscriber, options)
        if group.durable and not was_durable:
            self._changed(inner)
        self.subscriptions += new
        self.shared_subscriptions += new
        return new

    def _leave(self, subscriber: S, name: str, inner: str, filter: str) -> bool:
        group = self.group(filter)
        if group is None or not group.leave(subscriber):
            return False
        self.subscriptions -= 1
        self.shared_subscriptions -= 1
        if not group:
            entry = self._shared.get(inner)
            if isinstance(entry, dict):
                del entry[name]
                if len(entry) == 1:
                    self._shared.set(inner, next(iter(entry.values())))
            else:
                self._shared.remove(inner)
            self.groups -= 1
            self._filters.discard(filter)
            self._changed(inner)
        elif subscriber.durable and not group.durable:
            self._changed(inner)
        return True

    @staticmethod
    def _find(entry: Entry[S] | None, subscriber: S) -> Target[S] | None:
        if isinstance(entry, Fanout):
            return entry.targets.get(subscriber)
        return entry if entry is not None and entry.subscriber is subscriber else None

    def _changed(self, filter: str) -> None:
        if has_wildcard(filter):
            self.cache.drop_matching(filter)
        else:
            self.cache.drop(filter)

    def _resolve(self, topic: str) -> Route[S]:
        entries = self._plain.match(topic)
        shared, sinks = self._shared.match(topic), self._sinks.match(topic)
        if not entries and not shared and not sinks:
            return _NOWHERE
        receivers = self._merges.merge(entries) if entries else _NOBODY
        return Route(receivers, flatten(shared), tuple(chain.from_iterable(sinks)))
