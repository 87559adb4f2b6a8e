"""From observations of hooks to columns of the event table.

An observation is kept as it is, as one tuple, and turned into columns some hundreds at a time. A publication becomes
columns without being taken apart.
"""

from __future__ import annotations

from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute

from trunkline.events.schema import STORED, Flag
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trunkline.events.privacy import Privacy
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.publication import Publication

    #: An observation: number of the kind, seconds since the epoch, the client, the message or topic, and the columns
    #: that follow from neither client nor message.
    Observation: TypeAlias = tuple[int, float, ClientInfo | None, Publication | None, Mapping[str, Any] | None]
    Values: TypeAlias = pa.Array[Any]

_compute: Final[Any] = pyarrow.compute
_new_nulls: Final[Any] = pa.nulls  # whose stubs know each type but not all of them

#: 16 bytes for each id.
_GUID_OFFSETS: Final = pa.array(range(0, 16 * 4097, 16), pa.int32()).buffers()[1]
#: The two bytes that differ in the ids of a publication, for each value that they can have.
_HIGH: Final = bytes([number >> 8 for number in range(65_536)])
_LOW: Final = bytes(range(256)) * 256

_NULLS: Final[dict[pa.DataType, Values]] = {}

#: Seconds since the epoch, in the year 5138.
_FOREVER: Final = 1e11

_DUP: Final = int(Flag.DUP)
_TIME: Final = STORED.field("time").type
_PAIRS: Final = STORED.field("user_properties").type

#: In the order of `Converter._values_of`.
_OF_CLIENTS: Final = ("client_id", "username", "peer", "peer_port", "listener", "protocol")
_NOBODY: Final = (None,) * len(_OF_CLIENTS)
#: Clients whose columns are remembered.
_REMEMBERED: Final = 4096


class Converter:
    """Makes record batches. Between two batches it keeps only what it remembers of clients and texts."""

    def __init__(
        self, kinds: Sequence[str], schema: pa.Schema, privacy: Privacy, max_payload: int, weight: int
    ) -> None:
        """`kinds` are the names behind the numbers of `Observation`; `schema` some columns of `STORED`. Payloads
        longer than `max_payload` bytes are left out; `weight` is what each row of a message counts for."""
        self.schema: Final = schema
        self._kinds = kinds
        self._privacy = privacy
        self._max_payload = max_payload
        self._weight = weight
        #: The user name and the columns of each.
        self._known_clients: dict[ClientInfo, tuple[str | None, tuple[object, ...]]] = {}
        self._payloads = "payload" in schema.names
        self._pairs = "user_properties" in schema.names
        #: Whether rows hold fields whose size publishers choose.
        self.is_heavy: Final = self._payloads or self._pairs

    def weigh(self, thing: Publication) -> int:
        """Bytes of payloads and user properties that its rows will hold."""
        weight = 0
        if self._payloads:
            weight += sum([size for size in thing.sizes if size <= self._max_payload])
        if self._pairs:
            weight += thing.count * sum([len(key) + len(value) for key, value in _properties(thing)])
        return weight

    def convert(self, observed: Sequence[Observation], correction: float = 0.0) -> pa.RecordBatch:
        """All observations in order, with `correction` seconds added to their times: a row for each message, or one for
        an event without messages. A value common to all messages of a publication is computed once per publication and
        then repeated for each row.

        Raises:
            Exception: a value does not fit its column.
        """
        things = [each[3] for each in observed]
        times = [each[1] for each in observed]
        if not isfinite(sum(times)) or max(times, default=0.0) >= _FOREVER or min(times, default=0.0) <= -_FOREVER:
            raise ValueError("an event without a time that a calendar has")
        columns: dict[str, Values] = {
            "time": pa.array([int((time + correction) * 1e6) for time in times], pa.int64()).view(_TIME),
            "kind": pa.array([self._kinds[each[0]] for each in observed], pa.string()),
        }
        columns |= self._clients([each[2] for each in observed])
        some = [thing for thing in things if thing is not None]
        if some:
            of_messages = self._messages(some)
            if len(some) < len(observed):
                of_messages = _apart(of_messages, [thing is not None for thing in things])
            columns |= of_messages
            columns["latency_us"] = pa.array(
                [
                    None if thing is None else late if (late := int((time - thing.timestamp) * 1e6)) > 0 else 0
                    for time, thing in zip(times, things, strict=True)
                ],
                pa.int64(),
            )
        columns["weight"] = pa.array([1 if thing is None else self._weight for thing in things], pa.int32())
        self._add_given(columns, observed)
        lengths = [1 if thing is None else thing.count for thing in things]
        rows = sum(lengths)
        if rows > len(observed):
            pieces: list[int] = []
            for number, length in enumerate(lengths):
                pieces += [number] * length
            columns = _taken(columns, pieces)
        if some:
            of_each = self._of_each(some)
            if len(some) < len(observed):
                of_each = _apart(
                    of_each,
                    [thing is not None for thing, length in zip(things, lengths, strict=True) for _ in range(length)],
                )
            topics = columns.get("topic")
            columns |= of_each
            if topics is not None:
                columns["topic"] = _compute.coalesce(topics, columns["topic"])
        return self._batch(columns, rows)

    def _batch(self, columns: Mapping[str, Values], rows: int) -> pa.RecordBatch:
        """With nulls for unknown values."""
        arrays = [columns[field.name] if field.name in columns else _nulls(field.type, rows) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _add_given(self, columns: dict[str, Values], observed: Sequence[Observation]) -> None:
        """Values given by name take precedence."""
        given: dict[str, list[Any]] = {}
        for row, each in enumerate(observed):
            if each[4]:
                for name, value in each[4].items():
                    if name not in given:
                        given[name] = [None] * len(observed)
                    given[name][row] = value
        for name, values in given.items():
            hide = self._privacy.of(name)
            column = pa.array(values if hide is None else list(map(hide, values)), STORED.field(name).type)
            columns[name] = _compute.coalesce(column, columns[name]) if name in columns else column

    def _clients(self, clients: Sequence[ClientInfo | None]) -> dict[str, Values]:
        rows: list[tuple[object, ...]] = []
        for client in clients:
            if client is None:
                rows.append(_NOBODY)
                continue
            known = self._known_clients.get(client)
            if known is None or known[0] is not client.username:  # an authenticator may have changed that
                known = client.username, self._values_of(client)
                if len(self._known_clients) >= _REMEMBERED:
                    self._known_clients.clear()
                self._known_clients[client] = known
            rows.append(known[1])
        columns = zip(*rows, strict=True) if rows else [()] * len(_OF_CLIENTS)
        return {
            name: pa.array(values, STORED.field(name).type) for name, values in zip(_OF_CLIENTS, columns, strict=True)
        }

    def _values_of(self, client: ClientInfo) -> tuple[object, ...]:
        host, port = client.peer or (None, None)
        values = client.client_id, client.username, host, port, client.listener or None, int(client.version)
        hiding = map(self._privacy.of, _OF_CLIENTS)
        return tuple([value if hide is None else hide(value) for value, hide in zip(values, hiding, strict=True)])

    def _messages(self, things: Sequence[Publication]) -> dict[str, Values]:
        """The values that all messages of a publication have in common."""
        return {
            "publisher": self._texts("publisher", [thing.publisher for thing in things]),
            "qos": pa.array([thing.qos for thing in things], pa.int32()),
            "flags": _flags(things),
        }

    def _of_each(self, things: Sequence[Publication]) -> dict[str, Values]:
        """The columns whose values differ between messages."""
        topics: list[str] = []
        sizes: list[int] = []
        packet_ids: list[int] = []
        guids: list[bytes] = []
        for thing in things:
            if isinstance(thing, Message):
                topics.append(thing.topic)
                sizes.append(len(thing.payload))
                packet_ids.append(thing.packet_id if isinstance(thing, Publish) else 0)
                guids.append(thing.guid.to_bytes(16, "big"))
                continue
            topics += thing.topics if len(thing.topics) == thing.count else [thing.topic] * thing.count
            sizes += thing.sizes
            packet_ids += thing.packet_ids or [0] * thing.count
            guids.append(_guids_in_a_row(thing.guids))
        columns = {
            "topic": self._texts("topic", topics),
            "size": pa.array(sizes, pa.int64()),
            "packet_id": pa.array(packet_ids, pa.int32()),
            "guid": _guids(b"".join(guids), len(sizes)),
        }
        if self._payloads or self._pairs:
            messages = [message for thing in things for message in thing.messages]
            if self._payloads:
                limit = self._max_payload
                columns["payload"] = pa.array(
                    [message.payload if len(message.payload) <= limit else None for message in messages], pa.binary()
                )
            if self._pairs:
                columns["user_properties"] = pa.array(list(map(_pairs, messages)), _PAIRS)
        return columns

    def _texts(self, name: str, values: list[str]) -> Values:
        hide = self._privacy.of(name)
        return pa.array(values if hide is None else list(map(hide, values)), pa.string())


def _pairs(message: Message) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in _properties(message)]


def _properties(message: Publication) -> Sequence[tuple[str, str]]:
    return message.properties.get("user_property", ())


def _taken(columns: Mapping[str, Values], places: Sequence[int | None]) -> dict[str, Values]:
    """Columns of the values at these places, with null for None."""
    numbers = pa.array(places, pa.int32())
    return {name: column.take(numbers) for name, column in columns.items()}


def _apart(columns: Mapping[str, Values], present: Sequence[bool]) -> dict[str, Values]:
    """Columns with nulls put in where nothing is present."""
    numbers = count()
    return _taken(columns, [next(numbers) if is_there else None for is_there in present])


def _flags(things: Sequence[Publication]) -> Values:
    retained = [thing.retain for thing in things]
    again = [getattr(thing, "dup", False) for thing in things]
    if not any(retained) and not any(again):
        return pa.repeat(pa.scalar(0, pa.int32()), len(things))
    return pa.array([retain + _DUP * dup for retain, dup in zip(retained, again, strict=True)], pa.int32())


def _nulls(type: pa.DataType, rows: int) -> Values:
    """A column of nulls: a slice of a shared one."""
    column = _NULLS.get(type)
    if column is None or len(column) < rows:
        column = _NULLS[type] = _new_nulls(max(rows, 4096), type)
    return column.slice(0, rows)


def _guids(data: bytes, rows: int) -> Values:
    """A column of ids from their bytes, 16 each."""
    offsets = _GUID_OFFSETS
    if rows > 4096:
        offsets = pa.array(range(0, 16 * rows + 1, 16), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])


def _guids_in_a_row(guids: Sequence[int]) -> bytes:
    """The bytes of ids. In a range only their last two bytes differ (`trunkline.broker.guid`)."""
    first, count = guids[0], len(guids)
    low = first & 0xFFFF
    if not isinstance(guids, range) or low + count > 65_536:
        return b"".join([guid.to_bytes(16, "big") for guid in guids])
    data = bytearray(first.to_bytes(16, "big") * count)
    data[14::16] = _HIGH[low : low + count]
    data[15::16] = _LOW[low : low + count]
    return bytes(data)
