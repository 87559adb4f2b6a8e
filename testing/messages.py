"""The messages of a test's broker, and assertions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import trio

from trunkline.testing.arguments import naming
from trunkline.testing.expecting import Expected, counted, describe_found, describe_instead
from trunkline.testing.history import MAX_BYTES
from trunkline.testing.portal import Portal, Proxy, in_broker, maybe_async
from trunkline.testing.published import Published

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, Unpack

    from trunkline.testing.history import History, Mark
    from trunkline.testing.running import RunningBroker

P = TypeVar("P", bound=Portal)


class Like(TypedDict, total=False):
    """Selects messages; omitted fields match all."""

    #: Bytes, text, a value that is compared as JSON (None is null), or a callable that judges bytes.
    payload: Any
    qos: int
    retain: bool
    #: A client id; empty for the broker's own messages.
    publisher: str


class Watch(Proxy[P]):
    """Returns expected messages one after the other, each once."""

    def __init__(self, portal: P, running: RunningBroker, expected: Expected, after: int) -> None:
        super().__init__(portal)
        self._running = running
        self._expected = expected
        self._after = after
        self._changes = portal.call(running.history.changes)
        self._candidates = portal.call(running.history.messages)
        #: Numbers of those that were returned.
        self._returned: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching."""
        self._changes.close()

    @maybe_async
    async def next(self, timeout: float = 5.0) -> Published:  # noqa: ASYNC109 - as elsewhere here
        """The next expected message, within `timeout` seconds of the broker's clock.

        Raises:
            TimeoutError: none came. The error shows what was published instead.
        """
        __tracebackhide__ = True
        return await self.forward(timeout)

    async def forward(self, timeout: float) -> Published:  # noqa: ASYNC109 - as elsewhere here
        """As `next`, within a method that waits."""
        __tracebackhide__ = True
        until = self._portal.call(trio.current_time) + timeout
        while True:
            for message in self._candidates:
                number = message.number
                if number > self._after and number not in self._returned and self._expected.met_by(message):
                    self._returned.add(number)
                    return message
            self._candidates = await self._portal.run(self._changes.next, until)
            if not self._candidates and self._portal.call(trio.current_time) >= until:
                break
        before = f" after {counted(len(self._returned), 'message')} like it" if self._returned else ""
        raise TimeoutError(
            _missing(self._portal, self._running, self._expected, self._after, f" within {timeout:g} s{before}")
        )


class Messages(Proxy[P]):
    """The messages of a test's broker, and assertions about them."""

    def __init__(self, running: RunningBroker, portal: P) -> None:
        super().__init__(portal)
        self._running = running

    @property
    def history(self) -> int:
        """How many messages are kept."""
        return self._running.history.limit

    @property
    @in_broker
    def messages(self) -> list[Published]:
        """The published messages in order, the last `history` ones. Each shows its current outcome. Messages that the
        broker refused are included, with the reason.

        Raises:
            RuntimeError: the broker was opened with `history=0`.
        """
        return self._running.history.messages()

    @in_broker
    def mark(self) -> Mark:
        """This moment: with `after=` it, only messages that are published from now on count."""
        return self._running.history.mark()

    @naming(Like)
    def assert_published(
        self,
        topic_filter: str = "#",
        *,
        times: int | None = None,
        after: Published | Mark | None = None,
        **like: Unpack[Like],
    ) -> list[Published]:
        """Fail if no message like this was published, or not as many `times`. Returns those that were.

        `payload` is bytes, text, a value that is compared as JSON (None is null), or a callable that judges bytes;
        `qos`, `retain` and `publisher` (a client id) can be given, too. A message counts if the broker took it, whether
        or not anybody had subscribed; with `after` only if it was published behind that message or mark.

        Raises:
            AssertionError: with what was published instead.
            ValueError: the topic filter is invalid.
        """
        __tracebackhide__ = True
        return self._assert(Expected(topic_filter, **like), times, after)

    @naming(Like)
    def assert_not_published(
        self, topic_filter: str = "#", *, after: Published | Mark | None = None, **like: Unpack[Like]
    ) -> None:
        """Fail if a message like this was published. It is for the end of a test: it looks back, and does not wait.

        Raises:
            AssertionError: with the messages that were.
            ValueError: the topic filter is invalid.
        """
        __tracebackhide__ = True
        self._assert(Expected(topic_filter, **like), 0, after)

    @naming(Like)
    def assert_delivered(
        self,
        topic_filter: str = "#",
        *,
        to: str,
        times: int | None = None,
        after: Published | Mark | None = None,
        **like: Unpack[Like],
    ) -> list[Published]:
        """As `assert_published`, of messages that were written to the connection of the client `to`. All the rest is as
        the message was published: its QoS, for one, may be higher than that of the subscription.

        Raises:
            AssertionError: with what was published instead, and what became of it for this client.
            ValueError: the topic filter is invalid.
        """
        __tracebackhide__ = True
        return self._assert(Expected(topic_filter, to=to, **like), times, after)

    def _assert(self, expected: Expected, times: int | None, after: Published | Mark | None) -> list[Published]:
        __tracebackhide__ = True
        number, history = _number(after), self._running.history
        messages = [message for message in self.messages if message.number > number]
        found = [message for message in messages if expected.met_by(message)]
        if not found and times != 0:
            raise AssertionError(_missing(self._portal, self._running, expected, number))
        if times is not None and len(found) != times:
            lines = [f"{counted(len(found), 'message')}{expected} {_verb(expected, len(found))}, not {times}"]
            others = [message for message in messages if message not in found]
            if len(found) < times and others:
                lines.append(describe_instead(expected, others))
            raise AssertionError("\n".join([*lines, describe_found(found), *_forgotten(history, number)]))
        if times is not None and (forgotten := _forgotten(history, number)):
            raise AssertionError("\n".join([f"how many messages{expected} were published is not known", *forgotten]))
        return found

    @naming(Like)
    def watch(
        self,
        topic_filter: str = "#",
        predicate: Callable[[Published], object] | None = None,
        *,
        to: str | None = None,
        after: Published | Mark | None = None,
        **like: Unpack[Like],
    ) -> Watch[P]:
        """All messages like this, one after the other, by `next`; those that were published already come first. Best as
        a context manager: it ends with the block.

        Raises:
            ValueError: the topic filter is invalid.
        """
        expected = Expected(topic_filter, to=to, predicate=predicate, **like)
        return Watch(self._portal, self._running, expected, _number(after))

    @maybe_async
    @naming(Like)
    async def wait_for(
        self,
        topic_filter: str = "#",
        predicate: Callable[[Published], object] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109 - as elsewhere here
        *,
        to: str | None = None,
        times: int = 1,
        after: Published | Mark | None = None,
        **like: Unpack[Like],
    ) -> Published:
        """The first message like this: one that was published already, or else the next one that is. So it does not
        matter whether the code under test was quicker; to wait for another one, say `after=` the last. With `times`,
        the one with which there are so many.

        As `assert_published`; `predicate` is called again whenever something has become of the message, where the
        caller is, and with `to` it must have been delivered to that client. `timeout` in seconds of the broker's clock,
        for each.

        Raises:
            TimeoutError: none came. The error shows what was published instead.
            ValueError: the topic filter is invalid, or `times` is less than 1.
        """
        __tracebackhide__ = True
        if times < 1:
            raise ValueError(f"times={times}: must be 1 or more")
        expected = Expected(topic_filter, to=to, predicate=predicate, **like)
        with Watch(self._portal, self._running, expected, _number(after)) as watch:
            for _ in range(times - 1):
                await watch.forward(timeout)
            return await watch.forward(timeout)


def _missing(portal: Portal, running: RunningBroker, expected: Expected, after: int, when: str = "") -> str:
    """What a failure says if a message did not come."""
    messages = [message for message in portal.call(running.history.messages) if message.number > after]
    instead = describe_instead(expected, messages) + (" since" if after and not messages else "")
    lines = [f"no message{expected} {_verb(expected, 1)}{when}", instead]
    if expected.to is not None:
        lines.append(f"{expected.to!r} {portal.call(running.standing, expected.to)}")
    return "\n".join([*lines, *_forgotten(running.history, after)])


def _forgotten(history: History, after: int) -> list[str]:
    """A line if messages that the test needs were forgotten."""
    if history.forgotten <= after:
        return []
    kept = f"the last {history.limit}, and {MAX_BYTES >> 20} MiB"
    return [f"messages up to number {history.forgotten} are forgotten: kept are {kept}; see `history` and `after`"]


def _number(after: Published | Mark | None) -> int:
    if after is None:
        return 0
    return after.number if isinstance(after, Published) else after


def _verb(expected: Expected, number: int) -> str:
    verb = "was" if number == 1 else "were"
    return f"{verb} published" if expected.to is None else f"{verb} delivered to {expected.to!r}"
