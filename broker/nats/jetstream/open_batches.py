"""Messages that streams are to take all together, or none of them (ADR-50), until their publisher has said that these
are all.

They wait in memory. A batch is one connection's: others know nothing of it, and it ends with the connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.jetstream.refusals import LEVEL_TOO_HIGH, SEALED, TOO_LARGE
from trunkline.broker.nats.jetstream.stream_configs import kept_in
from trunkline.broker.nats.levels import is_too_high
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.numbers import number_of
from trunkline.streams.blocks import content_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.actors import Scheduler
    from trunkline.mqtt.message import Message
    from trunkline.streams.stream import Stream

BATCH: Final = "Nats-Batch-Id"
SEQUENCE: Final = "Nats-Batch-Sequence"
COMMIT: Final = "Nats-Batch-Commit"
#: What `COMMIT` says: the message is the last one; or it only says that the one before it was.
_LAST: Final = "1"
_END: Final = "eob"

#: As servers have it: characters of an id, messages of a batch, batches of a stream and of the node, and seconds
#: without a message behind which a batch ends.
_LONGEST_ID: Final = 64
MOST_MESSAGES: Final = 1000
MOST_OF_STREAM: Final = 50
MOST: Final = 1000
PATIENCE: Final = 10.0
#: Bytes of all messages that wait, roughly.
MOST_BYTES: Final = 64 << 20

_DISABLED: Final = partial(ApiError, 400, 10174, "atomic publish is disabled")
_NO_SEQUENCE: Final = partial(ApiError, 400, 10175, "atomic publish sequence is missing")
INCOMPLETE: Final = partial(ApiError, 400, 10176, "atomic publish batch is incomplete")
_BAD_ID: Final = partial(ApiError, 400, 10179, "atomic publish batch ID is invalid")
_TOO_LONG: Final = partial(ApiError, 400, 10199, f"atomic publish batch is too large: {MOST_MESSAGES}")
_BAD_COMMIT: Final = partial(ApiError, 400, 10200, "atomic publish batch commit is invalid")
_TOO_MANY: Final = partial(ApiError, 429, 10210, "atomic publish too many inflight")

#: The client, the stream, and the id.
Key = tuple[object, "Stream", str]


@dataclass(slots=True, eq=False)
class Batch:
    stream: Stream
    name: str
    #: When it ends without a message, in node time.
    due: float = 0.0
    weight: int = 0
    #: With what each demands of the stream.
    messages: list[tuple[Message, Mapping[str, str]]] = field(default_factory=list["tuple[Message, Mapping[str, str]]"])


class OpenBatches:
    """Of a node. `dropped` is told of a batch that was never complete."""

    def __init__(self, scheduler: Scheduler, dropped: Callable[[Batch], None]) -> None:
        self._scheduler = scheduler
        self._dropped = dropped
        #: Those that have waited for longest come first.
        self._open: dict[Key, Batch] = {}
        self._of_stream: Counter[Stream] = Counter()
        self._weight = 0
        self._timer = scheduler.call_at(inf, self._end_idle)

    def __len__(self) -> int:
        return len(self._open)

    def take(
        self, client: object, stream: Stream, message: Message, demands: Mapping[str, str], block: bytes
    ) -> Batch | None:
        """The next message of a batch. Returns the batch if it is complete.

        Raises:
            ApiError: why not. The batch is over, unless the message alone was wrong.
        """
        config = stream.config
        if 0 < config.max_message_size < content_sizes(message, config.measure)[0]:
            raise TOO_LARGE()
        sequence = _read_sequence(demands)
        key = (client, stream, demands[BATCH])
        batch = self._open.get(key)
        try:
            _check(stream, demands, block)
            if sequence is None:
                raise _NO_SEQUENCE()
            is_end = demands.get(COMMIT) == _END
            if sequence > MOST_MESSAGES + is_end:
                raise _TOO_LONG()
            if batch is None and sequence == 1 and not is_end:
                batch = self._begin(key)
            elif batch is None or sequence != len(batch.messages) + 1:
                raise INCOMPLETE()
            if not is_end:
                self._add(batch, message, demands)
        except ApiError as error:
            if key in self._open and error.err_code not in _ALONE:
                self._dropped(self._end(key))
            raise
        if COMMIT in demands:
            return self._end(key)
        batch.due = self._scheduler.now + PATIENCE
        self._open[key] = self._open.pop(key)
        if not self._timer.armed:
            self._timer.restart_at(batch.due)
        return None

    def _begin(self, key: Key) -> Batch:
        _, stream, name = key
        if self._of_stream[stream] >= MOST_OF_STREAM or len(self._open) >= MOST:
            raise _TOO_MANY()
        self._of_stream[stream] += 1
        self._open[key] = batch = Batch(stream, name)
        return batch

    def _add(self, batch: Batch, message: Message, demands: Mapping[str, str]) -> None:
        weight = message.weight
        if self._weight + weight > MOST_BYTES:
            raise _TOO_MANY()
        self._weight += weight
        batch.weight += weight
        batch.messages.append((message, demands))

    def _end(self, key: Key) -> Batch:
        batch = self._open.pop(key)
        self._weight -= batch.weight
        self._of_stream[batch.stream] -= 1
        if not self._of_stream[batch.stream]:
            del self._of_stream[batch.stream]
        return batch

    def leave(self, client: object) -> None:
        """It has gone."""
        for key in [key for key in self._open if key[0] is client]:
            self._dropped(self._end(key))

    def _end_idle(self) -> None:
        while self._open:
            key, batch = next(iter(self._open.items()))
            if batch.due > self._scheduler.now:
                self._timer.restart_at(batch.due)
                return
            self._dropped(self._end(key))


#: Errors of a message that is not of the batch, which goes on.
_ALONE: Final = {_NO_SEQUENCE().err_code}


def _read_sequence(demands: Mapping[str, str]) -> int | None:
    return number_of(demands.get(SEQUENCE, ""))


def _check(stream: Stream, demands: Mapping[str, str], block: bytes) -> None:
    if kept_in(stream.config.metadata).get("allow_atomic") is not True:
        raise _DISABLED()
    if stream.config.sealed:
        raise SEALED()
    if len(demands[BATCH]) > _LONGEST_ID:
        raise _BAD_ID()
    if is_too_high(block):
        raise LEVEL_TOO_HIGH()
    if demands.get(COMMIT, _LAST) not in (_LAST, _END):
        raise _BAD_COMMIT()
