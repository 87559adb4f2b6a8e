"""Replaying: the clients of a journal send the same packets to another broker, and its answers are compared."""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.management.journal_file import BrokerEnding, Closed, Journal, Opened, Passed
from trunkline.mqtt.conversation import Conversation
from trunkline.mqtt.describing import fields, line
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from trunkline.testing.clock import advance, settled
from trunkline.testing.opening import broker as open_broker
from trunkline.testing.packets import Splitter
from trunkline.testing.portal import in_trio

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trunkline.hooks.chain import Hooks
    from trunkline.management.journal_file import Entry
    from trunkline.mqtt.packets import Packet
    from trunkline.testing.broker import Broker

#: Bytes of one read.
_READ: Final = 65_536
#: Properties whose values may differ: they depend on time, on chance, or on how the broker counts.
_ANY_VALUE: Final = frozenset(("message_expiry_interval", "authentication_data", "assigned_client_identifier"))
_ENDED: Final = "the end of the connection"
_OPEN: Final = "an open connection"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the recorded broker sent and the other did not, or the other way round."""

    #: Its number in the journal.
    connection: int
    client_id: str
    #: Of the packet among those that were recorded to this client on this connection, from 1; of one that came in
    #: addition, of the one that it came before.
    position: int
    #: In words; empty for nothing.
    expected: str
    got: str

    def __str__(self) -> str:
        where = f"#{self.connection} {self.client_id or '?'}, packet {self.position} to it"
        return f"{where}:\n  expected {self.expected or 'nothing'}\n  got      {self.got or 'nothing'}"


@dataclass(slots=True)
class Comparison:
    """The result of a replay. Its text can be used in the report of a test."""

    #: Connections and packets that were compared.
    connections: int = 0
    packets: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])
    #: Connections that could not be replayed, and why.
    skipped: list[str] = field(default_factory=list[str])

    @property
    def same(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        count = len(self.differences)
        found = "no difference" if not count else "1 difference" if count == 1 else f"{count} differences"
        head = f"{found} in {self.packets} packets of {self.connections} connections"
        return "\n".join([head, *map(str, self.differences), *(f"not replayed: {why}" for why in self.skipped)])

    def check(self) -> None:
        """Raises AssertionError if there are differences, which the message shows."""
        if self.differences:
            raise AssertionError(str(self))


async def replay(
    path: Path | str,
    broker: Broker | None = None,
    *,
    speed: float | None = None,
    patience: float = 1.0,
    passwords: Mapping[str, str | bytes] | None = None,
    hooks: Hooks | None = None,
    **settings: Any,
) -> Comparison:
    """Replay the clients of a journal to a broker, and compare its packets with the recorded ones.

    The broker is a new one, with `hooks` and `settings` as for `broker()`, or the given `broker`. Connections open,
    send and close in the recorded order, and a client sends only after the broker has given the answers recorded up to
    then, for which it has `patience` seconds. In a trio run with `MockClock` the recorded times are kept, in no time.
    With a real clock nothing waits for them, unless a `speed` is given: 1.0 is that of the recording.

    Values that necessarily differ are not compared: client ids assigned by the broker, packet ids of its packets, topic
    aliases, the rest of a message's expiry, and the order between messages and answers. Journals do not hold passwords:
    `passwords` has them by user name.

    Raises:
        OSError: the journal cannot be read.
        JournalError: it is not a journal.
        ValueError: the speed is not positive.
        RuntimeError: not in trio. Elsewhere it is `trio.run(replay, path)`.
    """
    if not in_trio():
        raise RuntimeError("a replay runs in trio: in other code, trio.run(replay, path)")
    if speed is not None and speed <= 0:
        raise ValueError(f"speed={speed:g}: must be more than 0")
    entries = list(Journal(path))
    async with AsyncExitStack() as stack:
        if broker is None:
            broker = await stack.enter_async_context(open_broker(hooks=hooks, **settings))
        elif hooks is not None or settings:
            raise ValueError("hooks and settings are for a fresh broker; the one given has its own")
        nursery = await stack.enter_async_context(trio.open_nursery())
        player = _Player(broker, nursery, speed, patience, passwords or {})
        for entry in entries:
            await player.play(entry)
        comparison = await player.finish()
        nursery.cancel_scope.cancel()
    return comparison


@dataclass(slots=True, eq=False)
class _Heard:
    """The packets that a client received, recorded or now."""

    conversation: Conversation = field(default_factory=Conversation)
    lines: list[tuple[bool, str]] = field(default_factory=list[tuple[bool, str]])
    #: Packet ids that the broker gave, by what they were given to, as long as they stand for nothing in the other.
    ids: dict[str, deque[int]] = field(default_factory=dict[str, "deque[int]"])
    ended: bool = False

    def take(self, data: bytes) -> None:
        packet = self.conversation.read(data, from_client=False)
        text = _comparable(packet) if packet is not None else f"bytes {data.hex(' ')}"
        if isinstance(packet, (Publish, Pubrel)) and packet.packet_id:
            self.ids.setdefault(text.replace(" dup", ""), deque()).append(packet.packet_id)
        self.lines.append((isinstance(packet, Publish), text))


class _Side:
    """One connection of the journal, and the one that stands for it."""

    def __init__(self, number: int, stream: trio.abc.Stream) -> None:
        self.number = number
        self.stream = stream
        self.recorded = _Heard()
        self.now = _Heard()
        #: Packets that were recorded and did not come in time.
        self.missed = 0
        #: Its client, or whatever stands for it, has closed it.
        self.closed = False

    @property
    def missing(self) -> int:
        late = len(self.recorded.lines) - len(self.now.lines) - self.missed
        return late + (self.recorded.ended and not self.now.ended)


class _Player:
    def __init__(
        self,
        broker: Broker,
        nursery: trio.Nursery,
        speed: float | None,
        patience: float,
        passwords: Mapping[str, str | bytes],
    ) -> None:
        self._broker = broker
        self._nursery = nursery
        self._speed = speed
        self._patience = patience
        self._passwords = passwords
        self._virtual = speed is None and hasattr(trio.lowlevel.current_clock(), "jump")
        self._began = trio.current_time()
        self._sides: dict[int, _Side] = {}
        self._skipped: dict[int, str] = {}
        #: Packet ids now, by client id and recorded packet id; and client ids now, by those that were recorded.
        self._ids: dict[str, dict[int, int]] = {}
        self._names: dict[str, str] = {}
        self._changed = trio.Event()

    async def play(self, entry: Entry) -> None:
        if isinstance(entry, BrokerEnding):
            await self._answers()
            await self._broker.restart(
                graceful=entry.graceful, keep_sessions=entry.keeps_sessions, keep_retained=entry.keeps_retained
            )
            return
        if entry.connection in self._skipped:
            return
        await self._wait_until(entry.at)
        if isinstance(entry, Opened):
            if entry.whole:
                side = self._sides[entry.connection] = _Side(entry.connection, self._broker.connect())
                self._nursery.start_soon(self._listen, side)
            else:
                name = f" {entry.client_id}" if entry.client_id else ""
                self._skipped[entry.connection] = f"#{entry.connection}{name} was there before the recording began"
            return
        side = self._sides[entry.connection]
        if isinstance(entry, Closed):
            await self._close(side, entry)
        elif entry.from_client:
            await self._say(side, entry)
        else:
            side.recorded.take(entry.data)

    async def finish(self) -> Comparison:
        await self._answers()
        await settled()
        comparison = Comparison(skipped=list(self._skipped.values()))
        for side in self._sides.values():
            comparison.connections += 1
            comparison.packets += len(side.recorded.lines)
            comparison.differences += _differences(side)
        return comparison

    # Time

    async def _wait_until(self, at: float) -> None:
        when = self._began + at / (self._speed or 1.0)
        if self._speed is not None:
            await trio.sleep_until(when)
        elif self._virtual and when > trio.current_time():
            await advance(when - trio.current_time())

    async def _answers(self) -> None:
        """Wait until the broker has sent as much as it had by then. What does not come is not waited for again."""
        await settled()
        if not self._virtual:
            with trio.move_on_after(self._patience):
                while any(side.missing > 0 for side in self._sides.values()):
                    await self._changed.wait()
        for side in self._sides.values():
            if side.missing > 0:
                side.missed += side.missing
            self._relate(side)

    # Clients

    async def _say(self, side: _Side, passed: Passed) -> None:
        await self._answers()
        data = self._as_now(side, passed)
        if data is None:
            self._skipped[side.number] = f"#{side.number}: its CONNECT could not be decoded, and may hold secrets"
            del self._sides[side.number]
            await trio.aclose_forcefully(side.stream)
            return
        try:
            await side.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the broker has closed, which the comparison shows
        await settled()  # no other client speaks before this is heard

    async def _close(self, side: _Side, closed: Closed) -> None:
        if closed.by == "broker":
            side.recorded.ended = True
        await self._answers()
        side.closed = True
        await trio.aclose_forcefully(side.stream)
        await settled()

    def _as_now(self, side: _Side, passed: Passed) -> bytes | None:
        """A recorded packet as its client says it now: with the ids that this broker gave. None if it cannot be
        known."""
        packet = side.recorded.conversation.read(passed.data, from_client=True)
        if isinstance(packet, Connect):
            return self._connect(side, packet, passed)
        if passed.masked and packet is None:
            return None
        if isinstance(packet, (Puback, Pubrec, Pubcomp)):
            recorded = packet.packet_id
            given = self._ids.get(side.recorded.conversation.client_id, {}).get(recorded, recorded)
            start = 2 if passed.data[1] < 0x80 else 3
            return passed.data[:start] + given.to_bytes(2, "big") + passed.data[start + 2 :]
        return passed.data

    def _connect(self, side: _Side, connect: Connect, passed: Passed) -> bytes:
        name = self._names.get(connect.client_id, connect.client_id)
        password = self._passwords.get(connect.username or "") if passed.masked else None
        side.now.conversation.version = connect.version
        side.now.conversation.client_id = name
        if name == connect.client_id and password is None:
            return passed.data
        if isinstance(password, str):
            password = password.encode()
        return encode(replace(connect, client_id=name, password=password or connect.password), connect.version)

    # The broker

    async def _listen(self, side: _Side) -> None:
        splitter = Splitter()
        while True:
            try:
                data = await side.stream.receive_some(_READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            for packet in splitter.feed(bytes(data)):
                side.now.take(packet)
            side.now.ended = not data and not side.closed
            self._changed.set()
            self._changed = trio.Event()
            if not data:
                return

    def _relate(self, side: _Side) -> None:
        """Find the new id for each recorded one: those given to the same message, in order; and where messages differ,
        those that are left."""
        recorded, now = side.recorded, side.now
        if recorded.conversation.client_id and now.conversation.client_id:
            self._names[recorded.conversation.client_id] = now.conversation.client_id
        known = self._ids.setdefault(recorded.conversation.client_id, {})
        for text in recorded.ids.keys() & now.ids.keys():
            _pair(recorded.ids[text], now.ids[text], known)
        left, others = (deque(each for ids in heard.ids.values() for each in ids) for heard in (recorded, now))
        if left and others:
            _pair(left, others, known)
            recorded.ids.clear()
            now.ids.clear()


def _pair(recorded: deque[int], now: deque[int], known: dict[int, int]) -> None:
    while recorded and now:
        known[recorded.popleft()] = now.popleft()


def _comparable(packet: Packet) -> str:
    """A packet in words, without what may differ."""
    found = fields(packet)
    if isinstance(packet, (Publish, Pubrel)):
        found.pop("id", None)
    properties: dict[str, Any] = found.get("properties", {})
    properties.pop("topic_alias", None)
    for name in _ANY_VALUE & properties.keys():
        properties[name] = "…"
    if not properties:
        found.pop("properties", None)
    if isinstance(packet, Connack):
        found.pop("id", None)
    return line(found)


def _differences(side: _Side) -> list[Difference]:
    """Messages are compared with messages and answers with answers: which comes first between the two is chance."""
    found: list[Difference] = []
    for messages in (False, True):
        recorded = [(place, text) for place, (of, text) in enumerate(side.recorded.lines, 1) if of is messages]
        now = [text for of, text in side.now.lines if of is messages]
        found += _compared(side, recorded, now)
    found.sort(key=lambda difference: difference.position)
    if side.recorded.ended != side.now.ended:
        words = [_ENDED if heard.ended else _OPEN for heard in (side.recorded, side.now)]
        position = len(side.recorded.lines) + 1
        found.append(Difference(side.number, side.recorded.conversation.client_id, position, *words))
    return found


def _compared(side: _Side, recorded: list[tuple[int, str]], now: list[str]) -> list[Difference]:
    client_id = side.recorded.conversation.client_id
    matcher = SequenceMatcher(None, [text for _, text in recorded], now, autojunk=False)
    places = [place for place, _ in recorded] + [len(side.recorded.lines) + 1]
    found: list[Difference] = []
    for what, first, last, begin, end in matcher.get_opcodes():
        if what != "equal":
            for expected, got in zip_longest(recorded[first:last], now[begin:end]):
                position, text = expected or (places[last], "")
                found.append(Difference(side.number, client_id, position, text, got or ""))
    return found
