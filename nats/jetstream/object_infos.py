"""What an object store knows of an object: it stands as JSON in a message, and the object in others (ADR-20)."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping  # noqa: TC003  hints are looked at
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from trunkline.nats.jetstream.fields import BadReply, Form, Part, from_json, to_json
from trunkline.nats.protocol.headers import Headers

#: Bytes, unless somebody says something else.
CHUNK_SIZE: Final = 128 * 1024

_DIGEST: Final = "SHA-256="
_NUID: Final = re.compile(r"[a-zA-Z0-9_-]+")


class _ManyHeaders(Form):
    """A list of values for each name in JSON."""

    __slots__ = ()

    def write(self, value: Headers) -> dict[str, list[str]]:
        return {name: value.all(name) for name in value}

    def read(self, value: Mapping[str, list[str]]) -> Headers:
        return Headers(value)


class _NotStored(Form):
    """Others write it, and it means nothing."""

    __slots__ = ()

    def read(self, value: Any) -> float:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLink:
    """To an object of a bucket, or to the bucket if no name is given."""

    bucket: str
    name: str = ""
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOptions:
    link: Annotated[ObjectLink | None, Part(kind=ObjectLink)] = None
    #: Bytes.
    chunk_size: Annotated[int, Form("max_chunk_size")] = 0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    name: str
    bucket: str
    #: Of this object and no other: its chunks are found by it.
    nuid: str = ""
    #: Bytes.
    size: Annotated[int, Form(always=True)] = 0
    chunks: Annotated[int, Form(always=True)] = 0
    digest: str = ""
    description: str = ""
    headers: Annotated[Headers, _ManyHeaders()] = field(default_factory=Headers)
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Annotated[ObjectOptions, Part(kind=ObjectOptions)] = ObjectOptions()
    is_deleted: Annotated[bool, Form("deleted")] = False
    #: When this was stored, in seconds since the epoch.
    modified: Annotated[float, _NotStored("mtime")] = 0.0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def link(self) -> ObjectLink | None:
        """What it is a link to."""
        return self.options.link

    @property
    def chunk_subject(self) -> str:
        return f"$O.{self.bucket}.C.{self.nuid}"

    @property
    def subject(self) -> str:
        """Where this is stored."""
        return subject_of(self.bucket, self.name)

    def encode(self) -> bytes:
        # the time of a message is that of the stream (ADR-20, Modified Time)
        return json.dumps(to_json(replace(self, modified=0.0))).encode()


def subject_of(bucket: str, name: str) -> str:
    """Where it stands what is known of the object of this name."""
    if not name:
        raise ValueError("the name of an object is empty")
    return f"$O.{bucket}.M.{urlsafe_b64encode(name.encode()).decode()}"


def object_info_of(payload: bytes, time: float) -> ObjectInfo:
    """
    Raises:
        BadReply: it is none.
    """
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{payload[:80]!r} is no JSON: {error}") from None
    info = from_json(ObjectInfo, said)
    # what is removed by it is to be the chunks of this object alone
    if info.nuid and not _NUID.fullmatch(info.nuid):
        raise BadReply(f"the nuid of {info.name!r} is {info.nuid!r:.80}, which is no token of a subject")
    return replace(info, modified=time)


def digest_text(digest: bytes) -> str:
    return _DIGEST + urlsafe_b64encode(digest).decode()


def is_digest(text: str, digest: bytes) -> bool:
    """Whether this is what the text says, in which the padding may be missing."""
    kind, _, encoded = text.partition("=")
    if f"{kind.upper()}=" != _DIGEST:
        return False
    try:
        return urlsafe_b64decode(encoded.rstrip("=") + "=" * (-len(encoded.rstrip("=")) % 4)) == digest
    except ValueError:
        return False
