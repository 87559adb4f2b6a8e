"""Buckets, and the streams that they are: of keys with values (ADR-8, ADR-48), and of objects (ADR-20)."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003  hints are looked at
from dataclasses import dataclass, field, replace
from typing import Final

from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.configs import (
    Compression,
    Discard,
    Placement,
    Republish,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

#: Of values for each key.
MAX_HISTORY: Final = 64
#: In which the server knows a message by its id, in seconds, unless values live shorter.
DUPLICATE_WINDOW: Final = 120.0
#: Seconds, as the server has it for what expires by itself.
MIN_MARKER_TTL: Final = 1.0

KEY_VALUES: Final = "KV_"
OBJECTS: Final = "OBJ_"

_BUCKET: Final = re.compile(r"[a-zA-Z0-9_-]+")


def check_bucket(name: str) -> None:
    """
    Raises:
        BadSubject: it is no name of a bucket.
    """
    if not _BUCKET.fullmatch(name):
        raise BadSubject(f"{name!r}: the name of a bucket has letters and digits of ASCII, - and _")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueConfig:
    """Durations are seconds and sizes bytes. 0 is no duration, and -1 no limit."""

    bucket: str
    description: str = ""
    #: Values that are kept of each key, 64 at most.
    history: int = 1
    #: How long a value is kept.
    ttl: float = 0.0
    #: How long a mark is kept of what has expired; with it keys can have a TTL of their own.
    limit_marker_ttl: float = 0.0
    max_value_size: int = -1
    max_bytes: int = -1
    storage: Storage | str = Storage.FILE
    replicas: int = 1
    is_compressed: bool = False
    placement: Placement | None = None
    republish: Republish | None = None
    #: Another bucket that this is a copy of, by the name of the bucket or of its stream.
    mirror: StreamSource | None = None
    #: Other buckets whose values come into this one.
    sources: tuple[StreamSource, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def stream(self) -> StreamConfig:
        """
        Raises:
            ValueError: a value is not possible. BadSubject, which is one: the name is not.
        """
        check_bucket(self.bucket)
        if not 1 <= self.history <= MAX_HISTORY:
            raise ValueError(f"the history of a key is 1 to {MAX_HISTORY} values, not {self.history}")
        if self.limit_marker_ttl and self.limit_marker_ttl < MIN_MARKER_TTL:
            raise ValueError(f"limit_marker_ttl is {MIN_MARKER_TTL:g} s or more, not {self.limit_marker_ttl:g}")
        mirror = self.mirror and replace(self.mirror, name=_stream_of(self.mirror.name))
        return StreamConfig(
            name=KEY_VALUES + self.bucket,
            subjects=() if mirror else (f"$KV.{self.bucket}.>",),
            description=self.description,
            max_messages_per_subject=self.history,
            max_age=self.ttl,
            duplicate_window=min(self.ttl or DUPLICATE_WINDOW, DUPLICATE_WINDOW),
            allow_message_ttl=self.limit_marker_ttl > 0,
            delete_marker_ttl=self.limit_marker_ttl,
            max_message_size=self.max_value_size,
            max_bytes=self.max_bytes,
            storage=self.storage,
            replicas=self.replicas,
            compression=Compression.S2 if self.is_compressed else Compression.NONE,
            discard=Discard.NEW,
            allow_rollup=True,
            deny_delete=True,
            allow_direct=True,
            mirror_direct=mirror is not None,
            placement=self.placement,
            republish=self.republish,
            mirror=mirror,
            sources=tuple([self._source(each) for each in self.sources]),
            metadata=self.metadata,
        )

    def _source(self, source: StreamSource) -> StreamSource:
        """With its keys below this bucket, unless the user says where they are to be."""
        name = _stream_of(source.name)
        bucket = name.removeprefix(KEY_VALUES)
        if source.transforms or bucket == self.bucket:
            return replace(source, name=name)
        transform = SubjectTransform(source=f"$KV.{bucket}.>", destination=f"$KV.{self.bucket}.>")
        return replace(source, name=name, transforms=(transform,))

    @classmethod
    def of(cls, stream: StreamConfig) -> KeyValueConfig:
        """Of the bucket that this stream is."""
        return cls(
            bucket=stream.name.removeprefix(KEY_VALUES),
            description=stream.description,
            history=stream.max_messages_per_subject,
            ttl=stream.max_age,
            limit_marker_ttl=stream.delete_marker_ttl,
            max_value_size=stream.max_message_size,
            max_bytes=stream.max_bytes,
            storage=stream.storage,
            replicas=stream.replicas,
            is_compressed=stream.compression is not Compression.NONE,
            placement=stream.placement,
            republish=stream.republish,
            mirror=stream.mirror,
            sources=stream.sources,
            metadata=stream.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreConfig:
    """Durations are seconds and sizes bytes. 0 is no duration, and -1 no limit."""

    bucket: str
    description: str = ""
    #: How long an object is kept.
    ttl: float = 0.0
    max_bytes: int = -1
    storage: Storage | str = Storage.FILE
    replicas: int = 1
    is_compressed: bool = False
    placement: Placement | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    def stream(self) -> StreamConfig:
        """
        Raises:
            BadSubject: it is no name of a bucket.
        """
        check_bucket(self.bucket)
        return StreamConfig(
            name=OBJECTS + self.bucket,
            subjects=(f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"),
            description=self.description,
            max_age=self.ttl,
            max_bytes=self.max_bytes,
            storage=self.storage,
            replicas=self.replicas,
            compression=Compression.S2 if self.is_compressed else Compression.NONE,
            discard=Discard.NEW,
            allow_rollup=True,
            allow_direct=True,
            placement=self.placement,
            metadata=self.metadata,
        )

    @classmethod
    def of(cls, stream: StreamConfig) -> ObjectStoreConfig:
        """Of the bucket that this stream is."""
        return cls(
            bucket=stream.name.removeprefix(OBJECTS),
            description=stream.description,
            ttl=stream.max_age,
            max_bytes=stream.max_bytes,
            storage=stream.storage,
            replicas=stream.replicas,
            is_compressed=stream.compression is not Compression.NONE,
            placement=stream.placement,
            metadata=stream.metadata,
        )


def _stream_of(name: str) -> str:
    return name if name.startswith(KEY_VALUES) else KEY_VALUES + name
