"""The messages of a test's broker, kept in its trio run, and changes of their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NewType

import trio

from trunkline.broker.message_trace import MessageTrace
from trunkline.broker.traced_message import FAULT, TracedMessage
from trunkline.config.node_settings import TraceSettings
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish
from trunkline.testing.packets import TO
from trunkline.testing.published import Published

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.hooks.chain import Hooks
    from trunkline.testing.packets import RawPacket

#: Messages that a test's broker keeps, by default.
HISTORY: Final = 10_000
#: Bytes that all of them may take.
MAX_BYTES: Final = 268_435_456
#: Steps that are kept of one message.
_MAX_STEPS: Final = 20_000
#: Bytes of a payload that are kept: all of the largest packet.
_MAX_PAYLOAD: Final = 268_435_460

#: A moment between two messages: what was published later comes behind it.
Mark = NewType("Mark", int)


class History:
    """The messages of a test's broker, kept where it lives."""

    def __init__(
        self,
        hooks: Hooks,
        wall: Callable[[], float],
        limit: int = HISTORY,
        knows: Callable[[str], bool] = lambda client_id: True,
    ) -> None:
        """`wall` is the broker's time in seconds since the epoch. A limit of 0 keeps nothing, and the broker runs as if
        there was no history. `knows` says whether there was a client with this id."""
        self.limit = limit
        self._knows = knows
        settings = TraceSettings(
            max_messages=max(1, limit), max_steps=_MAX_STEPS, payload_bytes=_MAX_PAYLOAD, max_bytes=MAX_BYTES
        )
        self._trace = MessageTrace(hooks, wall, settings)
        if limit:
            self._trace.start()

    def close(self) -> None:
        """Stop; messages kept so far stay."""
        self._trace.stop()

    def clear(self) -> None:
        """Forget all messages, including the record that some were forgotten."""
        if self.limit:
            self._trace.start()

    def messages(self) -> list[Published]:
        """The published messages in order, up to the limit the last ones. Messages that the broker refused are
        included.

        Raises:
            RuntimeError: nothing is kept.
        """
        if not self.limit:
            raise RuntimeError("broker(history=0) keeps no messages")
        return [Published(record, self._knows) for record in self._trace.records() if record.begun]

    def of(self, message: Message) -> Published:
        """A message that was just published. If no messages are kept, its outcome is unknown."""
        record = self._trace.record(message.guid)
        found = TracedMessage(message, 0, _MAX_PAYLOAD, whole=True) if record is None else record
        return Published(found, self._knows)

    def mark(self) -> Mark:
        """This moment, for `after`."""
        messages = self.messages()
        return Mark(messages[-1].number if messages else 0)

    def lost(self, what: RawPacket | Message) -> None:
        """A fault has refused a message, or lost a packet: the last one of equal messages."""
        if isinstance(what, Message):
            self._trace.lose(what.guid, "")
        elif what.direction == TO and isinstance(publish := what.decoded, Publish):
            for record in reversed(self._trace.records()):
                if (record.topic, record.payload) == (publish.topic, publish.payload):
                    outcome = record.outcome(what.client)
                    if outcome.steps and outcome.reason != FAULT:
                        self._trace.lose(record.guid, what.client)
                        break

    @property
    def forgotten(self) -> int:
        """The number of the newest message that is not kept any more."""
        return self._trace.forgotten

    def changes(self) -> TraceChanges:
        return TraceChanges(self._trace, self._knows)


class TraceChanges:
    """The messages whose outcomes change from now on."""

    def __init__(self, trace: MessageTrace, knows: Callable[[str], bool]) -> None:
        self._trace = trace
        self._knows = knows
        self._records: dict[int, TracedMessage] = {}
        self._news = trio.Event()
        trace.listen(self._note)

    def _note(self, record: TracedMessage) -> None:
        self._records[record.number] = record
        self._news.set()

    async def next(self, until: float) -> list[Published]:
        """The messages that have changed since the last call, in order, as soon as there are any; none at the node time
        `until`."""
        with trio.move_on_at(until):
            await self._news.wait()
        self._news = trio.Event()
        records, self._records = self._records, {}
        return [Published(records[number], self._knows) for number in sorted(records) if records[number].begun]

    def close(self) -> None:
        """To be called from any thread, and when the broker is gone."""
        self._trace.unlisten(self._note)
