"""What faults do: to packets, to bytes, to connections, and to what clients ask for."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

import trio

from trunkline.hooks.decisions import Deny
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import PacketType, Publish
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.topics import matches, parse_shared, validate_filter
from trunkline.testing.packets import FROM, PACKETS, TO, Direction, Packet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType
    from typing import Self

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.exchange import Exchange
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.links import Link, Links
    from trunkline.testing.ways import Way

_logger = logging.getLogger("trunkline.testing")

#: Instead of a packet's name: all of them.
ANY: Final = "*"
#: The priority of callbacks that refuse: before those of the test, and of plugins.
_FIRST: Final = 2_000_000


class Which(TypedDict, total=False):
    """Which packets a fault is for; what is left out does not matter."""

    #: The client id.
    client: str
    #: `from` the client, or `to` it.
    direction: Direction
    #: A topic filter: only PUBLISH packets whose topic it takes.
    topic: str
    #: Called with the packet as `trunkline.mqtt` decodes it; only packets for which it says yes.
    where: Callable[[Any], object]
    #: Hits after which the fault is over.
    times: int
    #: Packets that are let pass at first.
    after: int


class Owner(Protocol):
    """The faults of a broker, as one of them sees them."""

    def remove(self, fault: Fault) -> None: ...
    def run(self, function: Callable[..., Awaitable[None]], *args: object) -> Any:
        """Have an async function run where the broker lives: to be awaited by code that awaits, or done when it
        returns."""
        ...


class Fault:
    """Something that goes wrong on purpose, until it is removed. As a context manager, until the block ends."""

    def __init__(self, text: str, owner: Owner, times: int | None = None, after: int = 0) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: a fault happens once at least")
        if after < 0:
            raise ValueError(f"{after} packets cannot be let pass first")
        self._text = text
        self._owner = owner
        self._times = times
        self._to_pass = after
        self._hit = trio.Event()
        #: How often it has happened.
        self.hits = 0
        #: What its predicate raised; the fault is over then.
        self.error: Exception | None = None

    def __repr__(self) -> str:
        return f"<{self._text}, {self.hits} hits>"

    @property
    def over(self) -> bool:
        """It has happened as often as it should."""
        return self.error is not None or (self._times is not None and self.hits >= self._times)

    def remove(self) -> None:
        """Everything is as it should be again. What the fault holds back goes on. Harmless when it is removed already."""
        self._owner.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
        if self.error is not None and error is None:
            raise self.error

    def triggered(self, times: int = 1, timeout: float = 5.0) -> Any:
        """Wait until it has happened `times` times, for `timeout` seconds of the broker's clock at most. To be awaited; of a
        broker that is used without `await`, it blocks.

        Raises:
            TimeoutError: it has not. The message says what was waited for.
            Exception: what the fault's predicate raised.
        """
        return self._owner.run(self._triggered, times, timeout)

    async def _triggered(self, times: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while self.hits < times and self.error is None:
                await self._hit.wait()
        if self.error is not None:
            raise self.error
        if self.hits < times:
            raise TimeoutError(f"{self._text}: happened {self.hits} times in {seconds:g} s, {times} were waited for")

    def happens(self) -> bool:
        """Something is there that the fault is for: does it happen now? If so, it is counted."""
        if self.over:
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        self.count()
        return True

    def count(self) -> None:
        self.hits += 1
        self._hit.set()
        self._hit = trio.Event()

    def failed(self, error: Exception) -> None:
        """Its predicate raised: that is the test's mistake, and not to be the broker's end."""
        _logger.error("%s: its predicate raised", self._text, exc_info=error)
        self.error = error
        self._hit.set()

    def begin(self, links: Links, hooks: Hooks) -> None:
        """Take effect."""

    def end(self, links: Links, hooks: Hooks) -> None:
        """Have no effect any more."""


# Packets


class Selection:
    """Which packets a fault is for."""

    def __init__(
        self,
        packet: str | PacketType,
        client: str | None = None,
        direction: Direction | None = None,
        topic: str | None = None,
        where: Callable[[Any], object] | None = None,
    ) -> None:
        """
        Raises:
            ValueError: there are no such packets. The message says what there is.
        """
        self.type = None if packet == ANY else packet_type(packet)
        self.client = client
        self.directions = directions(direction)
        self._topic = topic
        self._where = where
        if self.type is not None and not any(self.type in PACKETS[each] for each in self.directions):
            side = "client" if direction == FROM else "broker"
            known = ", ".join(kind.name for kind in sorted(PACKETS[self.directions[0]]))
            raise ValueError(f"a {side} sends no {self.type.name}; {direction!r} a client go {known}")
        if topic is not None:
            if self.type is not PacketType.PUBLISH:
                raise ValueError(f"topic={topic!r} selects PUBLISH packets; {packet} has no topic")
            check_filter(topic)

    def __str__(self) -> str:
        words = [ANY if self.type is None else self.type.name]
        if len(self.directions) == 1:
            words.append(self.directions[0])
        if self.client is not None:
            words.append(f"{'client' if len(self.directions) > 1 else ''} {self.client!r}".strip())
        if self._topic is not None:
            words.append(f"on {self._topic}")
        return " ".join(words)

    def concerns(self, client_id: str) -> bool:
        return self.client is None or self.client == client_id

    def takes(self, packet: Packet) -> bool:
        if packet.direction not in self.directions or (self.type is not None and packet.type is not self.type):
            return False
        if self._topic is not None:
            publish = packet.decoded
            if not isinstance(publish, Publish) or not publish.topic or not matches(self._topic, publish.topic):
                return False
        return self._where is None or (packet.decoded is not None and bool(self._where(packet.decoded)))


class PacketFault(Fault):
    """Happens to packets, one by one. The base lets none of them arrive."""

    def __init__(
        self,
        text: str,
        owner: Owner,
        selection: Selection,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(f"{text} {selection}", owner, times, after)
        self.selection = selection

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.rules.append(self)

    def end(self, links: Links, hooks: Hooks) -> None:
        links.rules.remove(self)

    def concerns(self, link: Link) -> bool:
        return not self.over and self.selection.concerns(link.client_id)

    def judge(self, packet: Packet, way: Way) -> bool:
        try:
            chosen = self.selection.takes(packet)
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            self.failed(error)
            return False
        if not chosen or not self.happens():
            return False
        self.act(packet, way)
        return True

    def act(self, packet: Packet, way: Way) -> None:
        """Deal with a packet that was chosen. What is not put on its way is lost."""


class Delay(PacketFault):
    seconds = 0.0

    def act(self, packet: Packet, way: Way) -> None:
        way.put(packet.data, self.seconds)


class Duplicate(PacketFault):
    copies = 1

    def act(self, packet: Packet, way: Way) -> None:
        again = packet.data
        if packet.type is PacketType.PUBLISH and again[0] & 0x06:  # [MQTT-3.3.1-1]
            again = bytes((again[0] | 0x08,)) + again[1:]
        way.put(packet.data)
        for _ in range(self.copies):
            way.put(again)


class Reorder(PacketFault):
    """Holds one packet back, of each connection and direction, until so many others of the kind have passed."""

    behind = 1

    def __init__(
        self,
        text: str,
        owner: Owner,
        selection: Selection,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(text, owner, selection, times, after)
        #: What is held, and how many are still to pass before it.
        self._held: dict[Way, tuple[bytes, int]] = {}

    def concerns(self, link: Link) -> bool:
        held = link.from_client in self._held or link.to_client in self._held
        return held or super().concerns(link)

    def judge(self, packet: Packet, way: Way) -> bool:
        if way not in self._held:
            return super().judge(packet, way)
        try:
            if not self.selection.takes(packet):
                return False
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            self.failed(error)
            return False
        data, missing = self._held[way]
        way.put(packet.data)
        if missing > 1:
            self._held[way] = (data, missing - 1)
        else:
            del self._held[way]
            way.put(data)
        return True

    def act(self, packet: Packet, way: Way) -> None:
        self._held[way] = (packet.data, self.behind)

    def end(self, links: Links, hooks: Hooks) -> None:
        super().end(links, hooks)
        for way, (data, _) in self._held.items():
            way.put(data)
            way.release_soon()
        self._held.clear()


class Cut(PacketFault):
    """Resets the connection at a packet."""

    before = True

    def act(self, packet: Packet, way: Way) -> None:
        if not self.before:
            way.put(packet.data)
        way.cut()


# Connections


class CutNow(Fault):
    """Resets the connections that there are."""

    def __init__(self, text: str, owner: Owner, client: str | None) -> None:
        super().__init__(text, owner)
        self._client = client

    def begin(self, links: Links, hooks: Hooks) -> None:
        for link in links:
            if self._client in (None, link.client_id):
                link.reset_soon()
                self.count()


class CutAfterBytes(Fault):
    """Resets a connection when so many bytes have passed since."""

    def __init__(
        self,
        text: str,
        owner: Owner,
        client: str | None,
        way: Sequence[Direction],
        size: int,
        times: int,
    ) -> None:
        super().__init__(text, owner, times)
        self._client = client
        self._directions = way
        self._size = size
        self._passed: dict[Link, int] = {}

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.meters.append(self)

    def end(self, links: Links, hooks: Hooks) -> None:
        links.meters.remove(self)

    def concerns(self, link: Link) -> bool:
        return not self.over and self._client in (None, link.client_id)

    def allows(self, link: Link, direction: Direction, size: int) -> int | None:
        if direction not in self._directions:
            return None
        passed = self._passed.get(link, 0)
        if passed + size < self._size:
            self._passed[link] = passed + size
            return None
        self._passed.pop(link, None)
        self.count()
        return self._size - passed


class Hold(Fault):
    """A state of connections: in some directions nothing goes on, or single bytes."""

    def __init__(self, text: str, owner: Owner, client: str | None) -> None:
        super().__init__(text, owner)
        self._client = client
        self.stops: frozenset[Direction] = frozenset()
        self.drips: dict[Direction, float] = {}
        self.hides_end = False

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.conditions.append(self)
        links.update()

    def end(self, links: Links, hooks: Hooks) -> None:
        links.conditions.remove(self)
        links.update()

    def concerns(self, link: Link) -> bool:
        return self._client in (None, link.client_id)

    def took_hold(self, link: Link) -> None:
        self.count()


# What clients ask for


class Refusal(Fault):
    """A callback that says no."""

    #: Hook points, and the method that is registered there.
    points: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        text: str,
        owner: Owner,
        reason: Reason,
        client: str | None,
        filter: str | None,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(text, owner, times, after)
        self._deny = Deny(reason, "refused by a fault of the test")
        self._client = client
        self._filter = filter
        if filter is not None:
            check_filter(filter)

    def begin(self, links: Links, hooks: Hooks) -> None:
        for point, method in self.points:
            hooks.add(point, getattr(self, method), priority=_FIRST)

    def end(self, links: Links, hooks: Hooks) -> None:
        for point, method in self.points:
            hooks.remove(point, getattr(self, method))

    def refuse(self, client: ClientInfo, topic: str = "") -> Deny | None:
        if self._client not in (None, client.client_id):
            return None
        if self._filter is not None and topic != self._filter and not matches(self._filter, topic):
            return None
        return self._deny if self.happens() else None


class RefuseConnect(Refusal):
    points = (("client.authenticate", "password"), ("client.enhanced_authenticate", "exchange"))

    def password(self, client: ClientInfo, password: bytes | None) -> Deny | None:
        return self.refuse(client)

    def exchange(self, client: ClientInfo, exchange: Exchange) -> Deny | None:
        return self.refuse(client) if exchange.first and not exchange.again else None


class RefuseSubscribe(Refusal):
    points = (("client.subscribe", "request"),)

    def request(self, client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> Deny | None:
        shared = parse_shared(request.filter) if self._filter != request.filter else None
        return self.refuse(client, shared[1] if shared is not None else request.filter)


class RefusePublish(Refusal):
    points = (("message.publish", "message"),)

    def message(self, client: ClientInfo, message: Message) -> Deny | None:
        return self.refuse(client, message.topic)


# What a test may write


def packet_type(name: str | PacketType) -> PacketType:
    """
    Raises:
        ValueError: no packet is called that.
    """
    kinds = {kind.name: kind for kind in PacketType if kind is not PacketType.WILL}
    kind = kinds.get(name.upper()) if isinstance(name, str) else name
    if kind is None or kind is PacketType.WILL:
        close = get_close_matches(str(name).upper(), kinds, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"no packet is called {name!r}{hint}; there are {', '.join(kinds)}, and {ANY!r} for all")
    return kind


def directions(direction: Direction | None) -> tuple[Direction, ...]:
    """
    Raises:
        ValueError: this is none.
    """
    if direction is None:
        return (FROM, TO)
    if direction not in (FROM, TO):
        raise ValueError(f"direction={direction!r}: it is {FROM!r} or {TO!r} (the client), or both if it is left out")
    return (direction,)


def check_filter(filter: str) -> None:
    """
    Raises:
        ValueError: this is no topic filter.
    """
    try:
        validate_filter(filter)
    except ProtocolError as error:
        raise ValueError(f"{filter!r} is no topic filter: {error}") from None


def refusing(reason: Reason | int | str, packet: PacketType) -> Reason:
    """A reason to refuse with, as the answer `packet` may carry it.

    Raises:
        ValueError: it may not.
    """
    known = {Reason(code).name: Reason(code) for code in sorted(REASONS[packet, False]) if code >= 0x80}
    try:
        found = known.get(reason.upper()) if isinstance(reason, str) else Reason(reason)
    except ValueError:
        found = None
    if found is None or found.name not in known:
        named = found.name if found is not None else reason if isinstance(reason, str) else f"0x{reason:02X}"
        raise ValueError(f"{packet.name} does not refuse with {named}, but with {', '.join(known)}")
    return found
