"""Rows to messages: which topic a row goes to, what its payload is, and by which number it is known."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite, isnan
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.analytics.sinks.settings import SinkError, SinkSettings
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.strings import MAX_STRING, decode_string
from trunkline.mqtt.topics import validate_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

#: Columns of these types can stand in a topic, by the name that Spark gives the type.
_TEXTS: Final = frozenset(("string", "varchar", "char"))
_IN_TOPICS: Final = _TEXTS | {
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
}
#: Characters that are %-encoded in topics on request: wildcards, control characters, and the percent sign.
_ESCAPED: Final = re.compile("[+#%\0-\x1f\x7f-\x9f]")


class Outgoing(NamedTuple):
    """A message to be published."""

    #: Its number in its batch.
    row: str
    topic: str
    payload: bytes


class Template:
    """Text with `{column}` in it; `{{` is a brace."""

    def __init__(self, option: str, text: str) -> None:
        self.option = option
        #: Text, and the column that follows it.
        self._parts: list[tuple[str, str | None]] = []
        try:
            for literal, column, spec, conversion in Formatter().parse(text):
                if spec or conversion or column == "":
                    raise ValueError("a column's name, and nothing else, stands in braces")
                self._parts.append((literal, column))
        except ValueError as error:
            raise SinkError(f"option {option}: {text!r}: {error}") from None

    @property
    def columns(self) -> list[str]:
        return [column for _, column in self._parts if column is not None]

    def fill(self, row: Mapping[str, Any], *, escape: bool = False) -> str:
        """The text of a row.

        Raises:
            SinkError: a column of it is null.
        """
        pieces: list[str] = []
        for literal, column in self._parts:
            pieces.append(literal)
            if column is not None:
                if row[column] is None:
                    raise SinkError(f"{self.option}: column {column} is null")
                text = in_topic(row[column])
                pieces.append(_ESCAPED.sub(_percent, text) if escape else text)
        return "".join(pieces)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def in_topic(value: Any) -> str:
    """A value as text that stands in a topic."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return str(in_json(value))
    return str(value)


def in_json(value: Any) -> Any:
    """A value as JSON has it, as Spark's `to_json` writes it: nulls are left out, times are ISO 8601 in UTC, bytes are
    Base64, and what JSON has no number for is a word."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {in_topic(name): in_json(inner) for name, inner in value.items() if inner is not None}
    return [in_json(inner) for inner in value]


def json_payloads(batch: "pa.RecordBatch", columns: Sequence[str]) -> Iterator[bytes]:
    """Each row as a JSON object without spaces, its keys in the order of the columns."""
    values = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in columns]
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for row in zip(*values, strict=True):
        yield encoder.encode(in_json(dict(zip(columns, row, strict=True)))).encode()


@lru_cache(maxsize=4096)
def judge(topic: str) -> str | None:
    """The error in a topic to publish to; empty if it is valid."""
    raw = topic.encode()
    if len(raw) > MAX_STRING:
        return f"the topic has {len(raw)} bytes; MQTT allows {MAX_STRING}"
    try:
        decode_string(raw)
        validate_name(topic)
    except ProtocolError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Plan:
    """How the rows of one table become messages."""

    topic: Template | None
    payload: str | None
    columns: tuple[str, ...]
    id: Template | None
    escape: bool
    skip: bool

    def messages(self, batch: "pa.RecordBatch", partition: int, first: int) -> Iterator[Outgoing | None]:
        """The messages of a batch whose first row has the number `first`; None stands for a row that is skipped.

        Raises:
            SinkError: a row cannot be a message.
        """
        named = {"topic"} if self.topic is None else set(self.topic.columns)
        if self.id is not None:
            named.update(self.id.columns)
        values = batch.select(sorted(named)).to_pylist() if named else [{}] * batch.num_rows
        if self.payload is None:
            payloads = json_payloads(batch, self.columns)
        else:
            payloads = (_payload(value) for value in batch.column(self.payload).to_pylist())
        for number, (row, payload) in enumerate(zip(values, payloads, strict=True), first):
            message: Outgoing | None = None
            try:
                message = Outgoing(self._id_of(row, partition, number), self._topic_of(row), payload)
            except SinkError as error:
                if not self.skip:
                    raise SinkError(f"row {number} of partition {partition}: {error}") from None
            yield message

    def _topic_of(self, row: Mapping[str, Any]) -> str:
        topic: str | None = row["topic"] if self.topic is None else self.topic.fill(row, escape=self.escape)
        if topic is None:
            raise SinkError("column topic is null")
        if (wrong := judge(topic)) is not None:
            raise SinkError(wrong)
        return topic

    def _id_of(self, row: Mapping[str, Any], partition: int, number: int) -> str:
        if self.id is None:
            return f"{partition}/{number}"
        text = self.id.fill(row)
        if len(text.encode()) > MAX_STRING or "\0" in text:
            raise SinkError(f"id: {text[:80]!r} cannot be a text of MQTT")
        return text


def _payload(value: Any) -> bytes:
    """An empty payload has a retained message deleted, and is what null means."""
    return b"" if value is None else value.encode() if isinstance(value, str) else value


def plan(settings: SinkSettings, schema: "StructType") -> Plan:
    """How rows of this schema become messages.

    Raises:
        SinkError: a column is missing, or has a type that is of no use here.
    """
    types = {field.name: field.dataType for field in schema.fields}
    topic = Template("topic", settings.topic) if settings.topic else None
    row = Template("id", settings.id) if settings.id else None
    if topic is None and "topic" not in types:
        raise SinkError("there is no column topic: add one, or give the option topic, such as topic=alerts/{client_id}")
    for option, template in (("topic", topic), ("id", row)):
        for name in [] if template is None else template.columns:
            _require(types, name, f"option {option}", _IN_TOPICS)
    if topic is None:
        _require(types, "topic", "the topic", _TEXTS)
    elif not topic.columns and (wrong := judge(settings.topic.format())) is not None:
        raise SinkError(f"option topic: {wrong}")
    payload = settings.payload or ("payload" if "payload" in types and not settings.columns else None)
    if payload is not None:
        _require(types, payload, "option payload" if settings.payload else "the payload", _TEXTS | {"binary"})
    for name in settings.columns:
        _require(types, name, "option columns", None)
    columns = settings.columns or tuple(name for name in types if topic is not None or name != "topic")
    if not columns:
        raise SinkError("there is no column beside topic: add one, such as payload")
    return Plan(topic, payload, columns, row, settings.escape, settings.invalid == "skip")


def _require(types: "dict[str, DataType]", name: str, what: str, allowed: frozenset[str] | None) -> None:
    if name not in types:
        raise SinkError(f"{what}: there is no column {name}; there are {', '.join(types) or 'none'}")
    found = types[name].typeName()
    if allowed is not None and found not in allowed:
        raise SinkError(
            f"{what}: column {name} is {types[name].simpleString()}; it can be {', '.join(sorted(allowed))}"
        )
