"""What was published in a test's broker, what became of it, and what a test expected of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NewType

import trio

from trunkline.broker.fate_record import DROPPED, HELD, NO_SUBSCRIBERS
from trunkline.broker.fates import Fates
from trunkline.broker.guid import to_text
from trunkline.broker.settings import TraceSettings
from trunkline.testing.expecting import ANY, SHOWN, Expected, came, came_instead

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.fate_record import Fate, Record
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.inside import Inside
    from trunkline.testing.reach import Calls

#: Messages that a test's broker keeps, if it is not told another number.
HISTORY: Final = 10_000
#: What all of them may take: steps of one message, and bytes of everything.
_STEPS: Final = 20_000
_BYTES: Final = 268_435_456
#: Payloads are kept whole.
_PAYLOAD: Final = 268_435_460

#: A moment between two messages: what was published later comes behind it.
Mark = NewType("Mark", int)


class Published:
    """A message that somebody published. What became of it is told as things stand when one asks."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

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
        """Why the broker did not take it: `not_authorized`, `hook`, `receive_maximum` or `session_ended`. Empty if it
        did."""
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
        if len(payload) > 80:
            payload = f"{payload[:80]}… ({len(self.payload)} bytes)"
        source = f"from {self.publisher!r}" if self.publisher else "from the broker itself"
        return f"{self.topic} {payload} QoS {self.qos}{' RETAIN' if self.retain else ''} {source}"

    def __repr__(self) -> str:
        fates = self.fates
        ends = [f"{client_id!r}: {_short(fate)}" for client_id, fate in list(fates.items())[:SHOWN]]
        if len(fates) > SHOWN:
            ends.append(f"… and {len(fates) - SHOWN} more")
        if self.refused:
            ends.append(f"not taken ({self.refused})")
        elif not self.routed:
            ends.append(HELD)
        return f"<{self}; {', '.join(ends) or 'nobody had subscribed'}>"


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

    def messages(self) -> list[Published]:
        """All that was published, in order; of more than the limit the last ones. What the broker did not take is there
        too.

        Raises:
            RuntimeError: nothing is kept.
        """
        if not self.limit:
            raise RuntimeError("broker(history=0) keeps no messages")
        return [Published(record) for record in self._fates.records() if record.begun]

    def mark(self) -> Mark:
        """This moment, for `after`."""
        messages = self.messages()
        return Mark(messages[-1].number if messages else 0)

    # What a test expects

    async def wait_for(self, expected: Expected, timeout: float, after: Published | Mark | None) -> Published:  # noqa: ASYNC109 - the same in code that does not await
        """The first message that is as expected, as soon as there is one.

        Raises:
            TimeoutError: none came. The message has what came instead.
            ValueError: the topic filter is none.
        """
        number = _number(after)
        changed: dict[int, Record] = {}
        news = trio.Event()

        def note(record: Record) -> None:
            changed[record.number] = record
            news.set()

        self._fates.listen(note)
        try:
            with trio.move_on_after(timeout):
                candidates = self.messages()
                while True:
                    for message in candidates:
                        if message.number > number and expected.met_by(message):
                            return message
                    await news.wait()
                    news = trio.Event()
                    candidates = [Published(record) for record in changed.values() if record.begun]
                    changed.clear()
        finally:
            self._fates.unlisten(note)
        raise TimeoutError(self._missing(expected, number, f" within {timeout:g} s"))

    def assert_published(
        self, expected: Expected, times: int | None, after: Published | Mark | None
    ) -> list[Published]:
        """
        Raises:
            AssertionError: it was not, or not so often. The message has what came instead.
            ValueError: the topic filter is none.
        """
        number = _number(after)
        found = [message for message in self._after(number) if expected.met_by(message)]
        if times is None and not found or times is not None and 0 == len(found) < times:
            raise AssertionError(self._missing(expected, number, ""))
        if times is not None and len(found) != times:
            raise AssertionError(
                f"{_count(len(found))}{expected} {_verb(expected, len(found))}, not {times}:\n{came(found)}"
            )
        return found

    def _after(self, number: int) -> list[Published]:
        return [message for message in self.messages() if message.number > number]

    def _missing(self, expected: Expected, number: int, when: str) -> str:
        lines = [f"no message{expected} {_verb(expected, 1)}{when}", came_instead(expected, self._after(number))]
        if expected.to is not None:
            lines.append(f"{expected.to!r} {self._describe(expected.to)}")
        return "\n".join(lines)


class Seeing:
    """What a test sees of the messages in its broker, and expects of them, without waiting."""

    _inside: Inside
    _calls: Calls

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
        return self._calls.call(self._inside.history.messages)

    def mark(self) -> Mark:
        """This moment: with `after=` it, only messages that are published from now on count."""
        return self._calls.call(self._inside.history.mark)

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
        expected = Expected(topic_filter, payload, qos, retain, publisher)
        return self._calls.call(self._inside.history.assert_published, expected, times, after)

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
        expected = Expected(topic_filter, payload, qos, retain, publisher)
        self._calls.call(self._inside.history.assert_published, expected, 0, after)

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
        expected = Expected(topic_filter, payload, qos, retain, publisher, to)
        return self._calls.call(self._inside.history.assert_published, expected, times, after)


def _number(after: Published | Mark | None) -> int:
    if after is None:
        return 0
    return after.number if isinstance(after, Published) else after


def _count(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def _verb(expected: Expected, number: int) -> str:
    verb = "was" if number == 1 else "were"
    return f"{verb} published" if expected.to is None else f"{verb} delivered to {expected.to!r}"
