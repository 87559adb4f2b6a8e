"""Shared subscriptions: one member of a group gets each message.

Members that are online come first. Only when none is, an offline one is picked, by the same strategy, and its session
keeps the message. Whether a member is online is asked when it is picked, so nobody has to report changes; as long as
most members are online, a pick looks at one or two of them, however many there are.
"""

from collections.abc import Container, Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import Any, Final, Generic
from zlib import crc32

from trunkline.mqtt.topics import join_shared
from trunkline.router.options import Options, intern_options
from trunkline.router.target import Destination, S, Target


class ShareStrategy(StrEnum):
    """How a group picks the member that gets a message."""

    #: Each member in turn, in order of subscription.
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    #: Always the same one, while it is online.
    STICKY = "sticky"
    #: Messages of one publisher go to the same member.
    HASH_CLIENT = "hash_client"
    #: Messages of one topic go to the same member.
    HASH_TOPIC = "hash_topic"

    @classmethod
    def _missing_(cls, value: object) -> "ShareStrategy | None":
        return _NAMES_IN_EMQX.get(value)


#: The turns of our `round_robin` are the group's, not each publisher's, and all members are on this node.
_NAMES_IN_EMQX: dict[object, ShareStrategy] = {
    "local": ShareStrategy.ROUND_ROBIN,
    "round_robin_per_group": ShareStrategy.ROUND_ROBIN,
    "hash_clientid": ShareStrategy.HASH_CLIENT,
}


class Member(Target[S]):
    """A member of a group, as a target."""

    __slots__ = ("durable", "group")

    def __init__(self, subscriber: S, options: Options, group: "Group[S]") -> None:
        super().__init__(subscriber, intern_options(options))
        #: As the group counts it.
        self.durable = subscriber.durable
        self.group = group  # type: ignore[misc]  # a slot in place of the class's constant


#: Up to this many members are searched one by one; for more, their positions are kept in a dict.
_SMALL = 8
#: This many members are tried at random before all of them are examined.
_PROBES = 12


class Group(Generic[S]):
    """The members that share one filter under one group name. The subclasses are the strategies."""

    __slots__ = ("_gaps", "_positions", "_random", "_ring", "durable", "filter", "name")

    strategy: ShareStrategy

    def __init__(self, name: str, filter: str, random: Random) -> None:
        self.name = name
        self.filter = filter
        #: The number of durable members.
        self.durable = 0
        self._random = random
        # In order of subscription. A member that leaves a big group leaves a gap, so that leaving needs no search.
        self._ring: list[Member[S] | None] = []
        self._positions: dict[S, int] | None = None
        self._gaps = 0

    @property
    def shared_filter(self) -> str:
        """As its members have subscribed to it."""
        return join_shared(self.name, self.filter)

    def __len__(self) -> int:
        return len(self._ring) - self._gaps

    def __iter__(self) -> Iterator[Member[S]]:
        return iter([member for member in self._ring if member is not None])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.filter!r} {len(self)} members>"

    def _position(self, subscriber: S) -> int:
        if self._positions is not None:
            return self._positions.get(subscriber, -1)
        for position, member in enumerate(self._ring):
            if member is not None and member.subscriber is subscriber:
                return position
        return -1

    def member(self, subscriber: S) -> Member[S] | None:
        position = self._position(subscriber)
        return None if position < 0 else self._ring[position]

    def join(self, subscriber: S, options: Options) -> bool:
        """True if the subscriber is a new member; otherwise its options are replaced and it keeps its place."""
        position = self._position(subscriber)
        member = Member(subscriber, options, self)
        if position >= 0:
            self.refresh(subscriber)
            self._replaced(self._ring[position], member)
            self._ring[position] = member
            return False
        self.durable += subscriber.durable
        self._ring.append(member)
        if self._positions is not None:
            self._positions[subscriber] = len(self._ring) - 1
        elif len(self._ring) > _SMALL:
            self._index()
        return True

    def refresh(self, subscriber: S) -> None:
        """It may have become durable."""
        member = self.member(subscriber)
        if member is not None:
            self.durable += subscriber.durable - member.durable
            member.durable = subscriber.durable

    def leave(self, subscriber: S) -> bool:
        position = self._position(subscriber)
        if position < 0:
            return False
        self.refresh(subscriber)
        self.durable -= subscriber.durable
        self._replaced(self._ring[position], None)
        if self._positions is None:
            del self._ring[position]
            self._removed(position)
            return True
        del self._positions[subscriber]
        self._ring[position] = None
        self._gaps += 1
        if self._gaps * 2 > len(self._ring):
            self._compact()
        return True

    def _compact(self) -> None:
        gaps = [position for position, member in enumerate(self._ring) if member is None]
        for position in reversed(gaps):
            self._removed(position)
        self._ring = [member for member in self._ring if member is not None]
        self._gaps = 0
        self._positions = None
        if len(self._ring) > _SMALL:
            self._index()

    def _index(self) -> None:
        self._positions = {member.subscriber: position for position, member in enumerate(self._ring) if member}

    def _removed(self, position: int) -> None:
        """Members behind the position have moved up by one."""

    def _replaced(self, old: Member[S] | None, new: Member[S] | None) -> None:
        """A member has left, or has new options."""

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        """The member that gets a message of this publisher on this topic.

        `exclude` names members that had their chance: those that left, or refused the message.
        """
        raise NotImplementedError

    def _left(self, exclude: Container[Destination]) -> list[Member[S]]:
        """All that can be picked: those online, or else those offline."""
        members = [member for member in self._ring if member is not None and member.subscriber not in exclude]
        return [member for member in members if member.subscriber.online] or members


class RoundRobin(Group[S]):
    __slots__ = ("_next",)

    strategy = ShareStrategy.ROUND_ROBIN

    def __init__(self, name: str, filter: str, random: Random) -> None:
        super().__init__(name, filter, random)
        self._next = 0

    def _removed(self, position: int) -> None:
        if position < self._next:
            self._next -= 1

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        offline = None
        offline_at = 0
        ring = self._ring
        position = self._next
        for _ in range(len(ring)):
            if position >= len(ring):
                position = 0
            member = ring[position]
            position += 1
            if member is None or (exclude and member.subscriber in exclude):
                continue
            if member.subscriber.online:
                self._next = position
                return member
            if offline is None:
                offline, offline_at = member, position
        if offline is not None:
            self._next = offline_at
        return offline


class Chance(Group[S]):
    """Each with the same probability."""

    __slots__ = ()

    strategy = ShareStrategy.RANDOM

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        ring = self._ring
        random = self._random.random
        for _ in range(_PROBES if ring else 0):
            member = ring[int(random() * len(ring))]
            if member is not None and member.subscriber.online and not (exclude and member.subscriber in exclude):
                return member
        left = self._left(exclude)
        return left[int(random() * len(left))] if left else None


class Sticky(Chance[S]):
    """The first is chosen by chance, so that the groups of the same members do not all stick to one of them."""

    __slots__ = ("_chosen",)

    strategy = ShareStrategy.STICKY

    def __init__(self, name: str, filter: str, random: Random) -> None:
        super().__init__(name, filter, random)
        self._chosen: Member[S] | None = None

    def _replaced(self, old: Member[S] | None, new: Member[S] | None) -> None:
        if self._chosen is old:
            self._chosen = new

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        chosen = self._chosen
        excluded = chosen is not None and bool(exclude) and chosen.subscriber in exclude
        if chosen is not None and chosen.subscriber.online and not excluded:
            return chosen
        picked = super().pick(publisher, topic, exclude)
        if picked is None:
            return None
        if chosen is not None and not excluded and not picked.subscriber.online:
            # Nobody is online: one offline session collects all.
            return chosen
        self._chosen = picked
        return picked


class Hashed(Group[S]):
    """By a key of the message.

    The key leads to a row of places, and the first that holds an online member is picked. So when a member goes, only
    its keys move, and when one joins, it takes its share and leaves the other keys where they were, except when the
    number of places has to be doubled.
    """

    __slots__ = ()

    def _pick(self, key: str, exclude: Container[Destination]) -> Member[S] | None:
        ring = self._ring
        mask = (1 << len(ring).bit_length()) - 1
        # Not hash(): all processes and nodes must agree.
        place = crc32(key.encode())
        for _ in range(2 * _PROBES):
            place = (place * 0x9E3779B97F4A7C15 + 0x7F4A7C15F39CC061) & 0xFFFF_FFFF_FFFF_FFFF
            position = (place >> 32) & mask
            if position < len(ring):
                member = ring[position]
                if member is not None and member.subscriber.online and not (exclude and member.subscriber in exclude):
                    return member
        left = self._left(exclude)
        return left[place % len(left)] if left else None


class HashClient(Hashed[S]):
    __slots__ = ()

    strategy = ShareStrategy.HASH_CLIENT

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        return self._pick(publisher, exclude)


class HashTopic(Hashed[S]):
    __slots__ = ()

    strategy = ShareStrategy.HASH_TOPIC

    def pick(self, publisher: str, topic: str, exclude: Container[Destination] = ()) -> Member[S] | None:
        return self._pick(topic, exclude)


_GROUPS: Final[dict[ShareStrategy, type[Group[Any]]]] = {
    kind.strategy: kind for kind in (RoundRobin, Chance, Sticky, HashClient, HashTopic)
}


def make_group(strategy: ShareStrategy, name: str, filter: str, random: Random) -> Group[Any]:
    return _GROUPS[strategy](name, filter, random)


def flatten(entries: Sequence["Group[S] | dict[str, Group[S]]"]) -> tuple[Group[S], ...]:
    """The groups of all filters that match a topic."""
    groups: list[Group[S]] = []
    for entry in entries:
        if isinstance(entry, dict):
            groups.extend(entry.values())
        else:
            groups.append(entry)
    return tuple(groups)
