"""What was published in a test's broker, what became of it, and what a test expected of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NewType, TypeVar

import trio

from trunkline.broker.fate_record import DROPPED, FAULT, HELD, NO_SUBSCRIBERS, Record
from trunkline.broker.fates import Fates
from trunkline.broker.guid import to_text
from trunkline.broker.settings import TraceSettings
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish
from trunkline.testing.expecting import ANY, SHOWN, Expected, came, came_instead
from trunkline.testing.packets import TO
from trunkline.testing.reach import Reach, Reaching, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from trunkline.broker.fate_record import Fate
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.inside import Inside
    from trunkline.testing.packets import Packet

R = TypeVar("R", bound=Reach)

#: Messages that a test's broker keeps, if it is not told another number.
HISTORY: Final = 10_000
#: What all of them may take: steps of one message, and bytes of everything.
_STEPS: Final = 20_000
_BYTES: Final = 268_435_456
#: Characters of a payload, and of a client id, that a line shows.
_WIDTH: Final = 80
#: Payloads are kept whole.
_PAYLOAD: Final = 268_435_460

#: A moment between two messages: what was published later comes behind it.
Mark = NewType("Mark", int)


class Published:
    """A message that somebody published. What became of it is told as things stand when one asks."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Published) and self._record is other._record

    def __hash__(self) -> int:
        return hash(self._record)

    @property
    def topic(self) -> str:
        """As it was routed: a hook may have changed it."""
        return self._record.topic

    @property
    def payload(self) -> bytes:
        return self._record.payload

    @property
    def qos(self) -> int:
        return self._record.qos

    @property
    def retain(self) -> bool:
        return self._record.retain

    @property
    def properties(self) -> Properties:
        return self._record.properties

    @property
    def publisher(self) -> str:
        """Client id; empty for the broker's own messages."""
        return self._record.publisher

    @property
    def guid(self) -> str:
        """The broker's id of the message: 32 hexadecimal digits, which sort by time."""
        return to_text(self._record.guid)

    @property
    def time(self) -> float:
        """When the broker got it, in seconds since the epoch by the broker's clock."""
        return self._record.published_at

    @property
    def number(self) -> int:
        """In the order in which messages were published."""
        return self._record.number

    # What became of it

    @property
    def routed(self) -> bool:
        """Did the broker take it, and look for subscribers?"""
        return self._record.routed

    @property
    def refused(self) -> str:
        """Why the broker did not take it: `not_authorized`, `hook`, `receive_maximum`, `session_ended`,
        `await_rel_timeout` or `payload_too_large`, or `fault` for one of `broker.faults`. Empty if it did."""
        reason = self._record.reason if self._record.state == DROPPED else ""
        return "" if reason == NO_SUBSCRIBERS else reason

    @property
    def fates(self) -> dict[str, Fate]:
        """By client id, for all that it was to go to."""
        return {client_id: self._record.fate(client_id) for client_id in self._record.clients}

    def fate(self, client_id: str) -> Fate:
        """What became of it for one client. Without any steps, if it was not to go there."""
        return self._record.fate(client_id)

    @property
    def delivered_to(self) -> tuple[str, ...]:
        """Client ids of those to whose connection it was written, acknowledged or not."""
        return tuple([client_id for client_id, fate in self.fates.items() if fate.deliveries])

    @property
    def dropped(self) -> dict[str, str]:
        """By client id, why it did not get there."""
        return {client_id: fate.reason for client_id, fate in self.fates.items() if fate.state == DROPPED}

    def __str__(self) -> str:
        """One line without what became of it."""
        payload = repr(self.payload)
        if len(payload) > _WIDTH:
            payload = f"{payload[:_WIDTH]}… ({len(self.payload)} bytes)"
        source = f"from {self.publisher!r}" if self.publisher else "from the broker itself"
        return f"{self.topic} {payload} QoS {self.qos}{' RETAIN' if self.retain else ''} {source}"

    def __repr__(self) -> str:
        return f"<{self}; {self.ends}>"

    @property
    def ends(self) -> str:
        """In one line what became of it: those first that it did not reach."""
        fates = sorted(self.fates.items(), key=lambda item: item[1].state != DROPPED)
        ends = [f"{_cut(client_id)}: {_short(fate)}" for client_id, fate in fates[:SHOWN]]
        if len(fates) > SHOWN:
            ends.append(f"… and {len(fates) - SHOWN} more")
        if self.refused:
            ends.append(f"not taken ({self.refused})")
        elif not self.routed:
            ends.append(HELD)
        return ", ".join(ends) or "nobody had subscribed"


def _cut(client_id: str) -> str:
    return repr(client_id if len(client_id) <= _WIDTH else f"{client_id[:_WIDTH]}…")


def _short(fate: Fate) -> str:
    return f"{fate.state} ({fate.reason})" if fate.reason else fate.state


class History:
    """The messages of a test's broker, kept where it lives."""

    def __init__(
        self, hooks: Hooks, wall: Callable[[], float], describe: Callable[[str], str], limit: int = HISTORY
    ) -> None:
        """`wall` is the broker's time in seconds since the epoch. `describe` says in a few words how a client stands.
        A limit of 0 keeps nothing, and the broker runs as if there was no history."""
        self.limit = limit
        self._describe = describe
        settings = TraceSettings(max_messages=max(1, limit), max_steps=_STEPS, payload_bytes=_PAYLOAD, max_bytes=_BYTES)
        self._fates = Fates(hooks, wall, settings)
        if limit:
            self._fates.start()

    def close(self) -> None:
        """What was published stays, and no more comes to it."""
        self._fates.stop()

    def clear(self) -> None:
        """Forget everything, and that anything was forgotten."""
        if self.limit:
            self._fates.start()

    def messages(self) -> list[Published]:
        """All that was published, in order; of more than the limit the last ones. What the broker did not take is there
        too.

        Raises:
            RuntimeError: nothing is kept.
        """
        if not self.limit:
            raise RuntimeError("broker(history=0) keeps no messages")
        return [Published(record) for record in self._fates.records() if record.begun]

    def of(self, message: Message) -> Published:
        """A message that was just published. If nothing is kept, nothing is known of what became of it."""
        record = self._fates.record(message.guid)
        return Published(Record(message, 0, _PAYLOAD, whole=True) if record is None else record)

    def mark(self) -> Mark:
        """This moment, for `after`."""
        messages = self.messages()
        return Mark(messages[-1].number if messages else 0)

    def lost(self, what: Packet | Message) -> None:
        """A fault has refused a message, or has not let a packet arrive: of messages that are alike, the last one."""
        if isinstance(what, Message):
            self._fates.lose(what.guid, "")
        elif what.direction == TO and isinstance(publish := what.decoded, Publish):
            for record in reversed(self._fates.records()):
                if (record.topic, record.payload) == (publish.topic, publish.payload):
                    fate = record.fate(what.client)
                    if fate.steps and fate.reason != FAULT:
                        self._fates.lose(record.guid, what.client)
                        break

    @property
    def forgotten(self) -> int:
        """The number of the newest message that is not kept any more."""
        return self._fates.forgotten

    def standing(self, client_id: str) -> str:
        """How a client stands, in a few words."""
        return self._describe(client_id)

    def changes(self) -> Changes:
        return Changes(self._fates)


class Changes:
    """The messages that something becomes of from now on."""

    def __init__(self, fates: Fates) -> None:
        self._fates = fates
        self._records: dict[int, Record] = {}
        self._news = trio.Event()
        fates.listen(self._note)

    def _note(self, record: Record) -> None:
        self._records[record.number] = record
        self._news.set()

    async def next(self, until: float) -> list[Published]:
        """Those that something has become of since the last time, in order, as soon as there are any; none, when it is
        `until` in node time."""
        with trio.move_on_at(until):
            await self._news.wait()
        self._news = trio.Event()
        records, self._records = self._records, {}
        return [Published(records[number]) for number in sorted(records) if records[number].begun]

    def close(self) -> None:
        """To be called from any thread, and when the broker is gone."""
        self._fates.unlisten(self._note)


class Watch(Reaching[R]):
    """Messages that are as expected, one after the other: each is returned once."""

    def __init__(self, reach: R, history: History, expected: Expected, after: int) -> None:
        super().__init__(reach)
        self._history = history
        self._expected = expected
        self._after = after
        self._changes = reach.call(history.changes)
        self._candidates = reach.call(history.messages)
        #: Numbers of those that were returned.
        self._returned: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Watch no more."""
        self._changes.close()

    @waits
    async def next(self, timeout: float = 5.0) -> Published:  # noqa: ASYNC109 - as elsewhere here
        """The next message that is as expected, for `timeout` seconds of the broker's clock.

        Raises:
            TimeoutError: none came. The message has what came instead.
        """
        __tracebackhide__ = True
        return await self.forward(timeout)

    async def forward(self, timeout: float) -> Published:  # noqa: ASYNC109 - as elsewhere here
        """As `next`, within a method that waits."""
        __tracebackhide__ = True
        until = self._reach.call(trio.current_time) + timeout
        while True:
            for message in self._candidates:
                number = message.number
                if number > self._after and number not in self._returned and self._expected.met_by(message):
                    self._returned.add(number)
                    return message
            self._candidates = await self._reach.run(self._changes.next, until)
            if not self._candidates and self._reach.call(trio.current_time) >= until:
                break
        before = f" after {_count(len(self._returned))} like it" if self._returned else ""
        raise TimeoutError(
            missing(self._reach, self._history, self._expected, self._after, f" within {timeout:g} s{before}")
        )


def missing(reach: Reach, history: History, expected: Expected, after: int, when: str = "") -> str:
    """What a failure says if a message did not come."""
    messages = [message for message in reach.call(history.messages) if message.number > after]
    lines = [f"no message{expected} {_verb(expected, 1)}{when}", came_instead(expected, messages)]
    if expected.to is not None:
        lines.append(f"{expected.to!r} {reach.call(history.standing, expected.to)}")
    return "\n".join([*lines, *lost(history, after)])


def lost(history: History, after: int) -> list[str]:
    """That messages were forgotten, if any were that a test asks for."""
    if history.forgotten <= after:
        return []
    most = f"the last {history.limit}, and {_BYTES >> 20} MiB"
    return [f"messages up to number {history.forgotten} are forgotten: kept are {most}; see `history` and `after`"]


class Seeing(Reaching[R]):
    """What a test sees of the messages in its broker, and expects of them."""

    _inside: Inside

    @property
    def history(self) -> int:
        """How many messages are kept."""
        return self._inside.history.limit

    @property
    def messages(self) -> list[Published]:
        """What was published, in order, of more than `history` the last ones. What became of each is told as things stand
        when it is asked. Messages that the broker did not take are there too: they say why.

        Raises:
            RuntimeError: the broker was opened with `history=0`.
        """
        return self._reach.call(self._inside.history.messages)

    def mark(self) -> Mark:
        """This moment: with `after=` it, only messages that are published from now on count."""
        return self._reach.call(self._inside.history.mark)

    def assert_published(
        self,
        topic_filter: str = "#",
        *,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        times: int | None = None,
        after: Published | Mark | None = None,
    ) -> list[Published]:
        """Fail if no message like this was published, or not as many `times`. Returns those that were.

        `payload` is bytes, text, a value that is compared as JSON (None is null), or a callable that judges bytes. A
        message counts if the broker took it, whether or not anybody had subscribed; with `after` only if it was published
        behind that message or mark.

        Raises:
            AssertionError: with what was published instead.
            ValueError: the topic filter is none.
        """
        __tracebackhide__ = True
        expected = Expected(topic_filter, payload, qos, retain, publisher)
        return self._assert(expected, times, after)

    def assert_not_published(
        self,
        topic_filter: str = "#",
        *,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        after: Published | Mark | None = None,
    ) -> None:
        """Fail if a message like this was published. It is for the end of a test: it looks back, and does not wait.

        Raises:
            AssertionError: with the messages that were.
            ValueError: the topic filter is none.
        """
        __tracebackhide__ = True
        expected = Expected(topic_filter, payload, qos, retain, publisher)
        self._assert(expected, 0, after)

    def assert_delivered(
        self,
        topic_filter: str = "#",
        *,
        to: str,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        times: int | None = None,
        after: Published | Mark | None = None,
    ) -> list[Published]:
        """As `assert_published`, of messages that were written to the connection of the client `to`. All the rest is as
        the message was published: its QoS, for one, may be higher than that of the subscription.

        Raises:
            AssertionError: with what was published instead, and what became of it for this client.
            ValueError: the topic filter is none.
        """
        __tracebackhide__ = True
        expected = Expected(topic_filter, payload, qos, retain, publisher, to)
        return self._assert(expected, times, after)

    def _assert(self, expected: Expected, times: int | None, after: Published | Mark | None) -> list[Published]:
        __tracebackhide__ = True
        number, history = _number(after), self._inside.history
        found = [message for message in self.messages if message.number > number and expected.met_by(message)]
        if times is None and not found or times is not None and 0 == len(found) < times:
            raise AssertionError(missing(self._reach, history, expected, number))
        if times is not None and len(found) != times:
            head = f"{_count(len(found))}{expected} {_verb(expected, len(found))}, not {times}"
            numbers = {message.number for message in found}
            others = [message for message in self.messages if message.number > number and message.number not in numbers]
            lines = [came_instead(expected, others)] if len(found) < times and others else []
            raise AssertionError("\n".join([head, *lines, came(found), *lost(history, number)]))
        if times is not None and (forgotten := lost(history, number)):
            raise AssertionError("\n".join([f"how many messages{expected} were published is not known", *forgotten]))
        return found

    def watch(
        self,
        topic_filter: str = "#",
        predicate: Callable[[Published], object] | None = None,
        *,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        to: str | None = None,
        after: Published | Mark | None = None,
    ) -> Watch[R]:
        """All messages like this, one after the other, by `next`; those that were published already come first. Best as
        a context manager: it is at its end when the block is.

        Raises:
            ValueError: the topic filter is none.
        """
        expected = Expected(topic_filter, payload, qos, retain, publisher, to, predicate)
        return Watch(self._reach, self._inside.history, expected, _number(after))

    @waits
    async def wait_for(
        self,
        topic_filter: str = "#",
        predicate: Callable[[Published], object] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109 - as elsewhere here
        *,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        to: str | None = None,
        times: int = 1,
        after: Published | Mark | None = None,
    ) -> Published:
        """The first message like this: one that was published already, or else the next one that is. So it does not
        matter whether the code under test was quicker; to wait for another one, say `after=` the last. With `times`, the
        one with which there are so many.

        As `assert_published`; `predicate` is asked again whenever something has become of the message, where the caller
        is, and with `to` it must have been delivered to that client. `timeout` in seconds of the broker's clock, for each.

        Raises:
            TimeoutError: none came. The message has what came instead.
            ValueError: the topic filter is none, or `times` is less than 1.
        """
        __tracebackhide__ = True
        if times < 1:
            raise ValueError(f"times={times}: a message that is waited for comes once at least")
        expected = Expected(topic_filter, payload, qos, retain, publisher, to, predicate)
        with Watch(self._reach, self._inside.history, expected, _number(after)) as watch:
            for _ in range(times - 1):
                await watch.forward(timeout)
            return await watch.forward(timeout)


def _number(after: Published | Mark | None) -> int:
    if after is None:
        return 0
    return after.number if isinstance(after, Published) else after


def _count(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def _verb(expected: Expected, number: int) -> str:
    verb = "was" if number == 1 else "were"
    return f"{verb} published" if expected.to is None else f"{verb} delivered to {expected.to!r}"
