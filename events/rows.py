"""From what hooks told to columns of the event table.

What a hook tells is kept as it is, as one tuple, and turned into columns some hundreds at a time. A burst becomes
columns without being taken apart.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute

from trunkline.events.schema import STORED, Flag
from trunkline.mqtt.burst import Burst

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trunkline.events.privacy import Privacy
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.message import Message

    #: What a hook told: number of the kind, seconds since the epoch, whom it is about, of what, and the columns that
    #: follow from neither client nor message.
    Told: TypeAlias = tuple[int, float, ClientInfo | None, Message | Burst | None, Mapping[str, Any] | None]
    Values: TypeAlias = pa.Array[Any]

_compute: Final[Any] = pyarrow.compute
_new_nulls: Final[Any] = pa.nulls  # whose stubs know each type but not all of them

#: Bursts from this length on become columns as they are; shorter ones are cheaper as messages.
LONG: Final = 64
#: 16 bytes for each id.
_GUID_OFFSETS: Final = pa.array(range(0, 16 * 4097, 16), pa.int32()).buffers()[1]
#: The two bytes that differ in the ids of a burst, for each value that they can have.
_HIGH: Final = bytes([number >> 8 for number in range(65_536)])
_LOW: Final = bytes(range(256)) * 256

_NULLS: Final[dict[pa.DataType, Values]] = {}

_DUP: Final = int(Flag.DUP)
_TIME: Final = STORED.field("time").type
_PAIRS: Final = STORED.field("user_properties").type

#: Columns of clients and of messages, in the order in which they are made.
_OF_CLIENTS: Final = ("client_id", "username", "peer", "peer_port", "listener", "protocol")


class Converter:
    """Makes record batches. It holds nothing between two of them but what it has hashed."""

    def __init__(
        self, kinds: Sequence[str], schema: pa.Schema, privacy: Privacy, max_payload: int, weight: int
    ) -> None:
        """`kinds` are the names behind the numbers of `Told`; `schema` some columns of `STORED`. Payloads longer than
        `max_payload` bytes are left out; `weight` is what each row of a message counts for."""
        self.schema: Final = schema
        self._kinds = pa.array(kinds, pa.string())
        self._privacy = privacy
        self._max_payload = max_payload
        self._weight = weight
        self._payloads = "payload" in schema.names
        self._pairs = "user_properties" in schema.names

    def convert(self, told: Sequence[Told]) -> pa.RecordBatch:
        """All of it, in order.

        Raises:
            Exception: something in it is not what the columns hold.
        """
        batches: list[pa.RecordBatch] = []
        run: list[Told] = []
        for each in told:
            burst = each[3]
            if type(burst) is not Burst:
                run.append(each)
            elif len(burst) < LONG:
                run += zip(
                    repeat(each[0]), repeat(each[1]), repeat(each[2]), burst.messages, repeat(each[4]), strict=False
                )
            else:
                if run:
                    batches.append(self._run(run))
                    run = []
                batches.append(self._burst(each, burst))
        if run or not batches:
            batches.append(self._run(run))
        if len(batches) == 1:
            return batches[0]
        whole = pa.Table.from_batches(batches, self.schema).combine_chunks()
        return whole.to_batches()[0]

    def _batch(self, columns: Mapping[str, Values], rows: int) -> pa.RecordBatch:
        """With nulls where nothing is known."""
        arrays = [columns[field.name] if field.name in columns else _nulls(field.type, rows) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _run(self, told: Sequence[Told]) -> pa.RecordBatch:
        rows = len(told)
        times = pa.array([each[1] for each in told], pa.float64())
        columns = {
            "time": _microseconds(times).cast(_TIME),
            "kind": self._kinds.take(pa.array([each[0] for each in told], pa.int32())),
        }
        columns |= self._clients([each[2] for each in told])
        things = [each[3] for each in told]
        messages = [thing for thing in things if thing is not None]
        of_messages = self._messages(cast("list[Message]", messages)) if messages else {}
        weights = pa.repeat(pa.scalar(self._weight, pa.int32()), len(messages))
        if len(messages) == rows:
            columns |= of_messages
        else:
            numbers = iter(range(rows))
            places = pa.array([None if thing is None else next(numbers) for thing in things], pa.int32())
            columns |= {name: column.take(places) for name, column in of_messages.items()}
            weights = _compute.fill_null(weights.take(places), 1)
        columns["weight"] = weights
        if messages:
            stamps = columns.pop("stamp")
            columns["latency_us"] = _compute.max_element_wise(
                _microseconds(_compute.subtract(times, stamps)), 0, skip_nulls=False
            )
        self._add_given(columns, told)
        return self._batch(columns, rows)

    def _add_given(self, columns: dict[str, Values], told: Sequence[Told]) -> None:
        """What was given by name goes before what is known otherwise."""
        given: dict[str, list[Any]] = {}
        for row, each in enumerate(told):
            if each[4]:
                for name, value in each[4].items():
                    if name not in given:
                        given[name] = [None] * len(told)
                    given[name][row] = value
        for name, values in given.items():
            hide = self._privacy.of(name)
            column = pa.array(values if hide is None else list(map(hide, values)), STORED.field(name).type)
            columns[name] = _compute.coalesce(column, columns[name]) if name in columns else column

    def _clients(self, clients: Sequence[ClientInfo | None]) -> dict[str, Values]:
        """Each client is looked at once, however many rows it has."""
        known: dict[ClientInfo, int] = {}
        codes = pa.array(
            [None if client is None else known.setdefault(client, len(known)) for client in clients], pa.int32()
        )
        table = [_client_values(client) for client in known]
        columns: dict[str, Values] = {}
        for number, name in enumerate(_OF_CLIENTS):
            hide = self._privacy.of(name)
            values = [values[number] for values in table]
            column = pa.array(values if hide is None else list(map(hide, values)), STORED.field(name).type)
            columns[name] = column.take(codes)
        return columns

    def _messages(self, messages: Sequence[Message]) -> dict[str, Values]:
        """Of each message what is in it, and `stamp`, when the broker took it over."""
        guids = b"".join([message.guid.to_bytes(16, "big") for message in messages])
        columns = {
            "topic": self._texts("topic", [message.topic for message in messages]),
            "publisher": self._texts("publisher", [message.publisher for message in messages]),
            "qos": pa.array([message.qos for message in messages], pa.int32()),
            "flags": _flags(messages),
            "size": pa.array([len(message.payload) for message in messages], pa.int64()),
            "guid": _guids(guids, len(messages)),
            "packet_id": pa.array([getattr(message, "packet_id", 0) for message in messages], pa.int32()),
            "stamp": pa.array([message.timestamp for message in messages], pa.float64()),
        }
        if self._payloads:
            columns["payload"] = self._payload_column([message.payload for message in messages])
        if self._pairs:
            columns["user_properties"] = pa.array(
                [
                    [{"key": key, "value": value} for key, value in message.properties.get("user_property", ())]
                    for message in messages
                ],
                _PAIRS,
            )
        return columns

    def _burst(self, told: Told, burst: Burst) -> pa.RecordBatch:
        kind, time, client, _, given = told
        rows = len(burst)

        def same(name: str, value: object) -> Values:
            hide = self._privacy.of(name)
            column: Values = pa.repeat(pa.scalar(value if hide is None else hide(value), STORED.field(name).type), rows)
            return column

        topics = burst.topics
        columns = {
            "time": same("time", int(time * 1e6)),
            "kind": pa.repeat(self._kinds[kind], rows),
            "weight": same("weight", self._weight),
            "topic": same("topic", topics[0]) if len(topics) == 1 else self._texts("topic", list(topics)),
            "publisher": same("publisher", burst.publisher),
            "qos": same("qos", burst.qos),
            "flags": same("flags", 0),
            "size": pa.array(burst.sizes, pa.int64()),
            "guid": _guids(_guids_in_a_row(burst.guids), rows),
            "packet_id": pa.array(burst.packet_ids, pa.int32()) if burst.packet_ids else same("packet_id", 0),
            "latency_us": same("latency_us", max(0, int((time - burst.timestamp) * 1e6))),
        }
        if client is not None:
            for name, value in zip(_OF_CLIENTS, _client_values(client), strict=True):
                columns[name] = same(name, value)
        for name, value in (given or {}).items():
            columns[name] = same(name, value)
        if self._payloads:
            columns["payload"] = self._payload_column([message.payload for message in burst.messages])
        if self._pairs:
            columns["user_properties"] = same("user_properties", [])
        return self._batch(columns, rows)

    def _texts(self, name: str, values: list[str]) -> Values:
        hide = self._privacy.of(name)
        return pa.array(values if hide is None else list(map(hide, values)), pa.string())

    def _payload_column(self, payloads: list[bytes]) -> Values:
        limit = self._max_payload
        return pa.array([payload if len(payload) <= limit else None for payload in payloads], pa.binary())


def _client_values(client: ClientInfo) -> tuple[object, ...]:
    host, port = client.peer or (None, None)
    return client.client_id, client.username, host, port, client.listener or None, int(client.version)


def _flags(messages: Sequence[Message]) -> Values:
    retained = [message.retain for message in messages]
    again = [getattr(message, "dup", False) for message in messages]
    if not any(retained) and not any(again):
        return pa.repeat(pa.scalar(0, pa.int32()), len(messages))
    return pa.array([retain + _DUP * dup for retain, dup in zip(retained, again, strict=True)], pa.int32())


def _nulls(type: pa.DataType, rows: int) -> Values:
    """A column of which nothing is known. They are all the same, so each is a piece of one."""
    column = _NULLS.get(type)
    if column is None or len(column) < rows:
        column = _NULLS[type] = _new_nulls(max(rows, 4096), type)
    return column.slice(0, rows)


def _microseconds(seconds: Values) -> Values:
    whole: Values = _compute.cast(_compute.multiply(seconds, 1e6), pa.int64(), safe=False)
    return whole


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
