"""What an account has in JetStream, and what it may have."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the hints of the fields are looked at
from dataclasses import dataclass, field
from typing import Annotated, Any

from trunkline.nats.jetstream.fields import Part, PartsByName


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits:
    """Sizes are bytes, and -1 is no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    #: Of one consumer.
    max_ack_pending: int = -1
    #: Of one stream, in memory or in files.
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    #: Whether each stream has to have `max_bytes`.
    max_bytes_required: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What is in use. Sizes are bytes."""

    memory: int = 0
    storage: int = 0
    #: The `max_bytes` of all streams, which the server keeps free for them; old servers do not say it.
    reserved_memory: int = 0
    reserved_storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: Annotated[AccountLimits, Part(kind=AccountLimits)]
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiUsage:
    """Requests of JetStream's API."""

    #: What the server knows of the API (ADR-44); 0: it does not say.
    level: int = 0
    total: int = 0
    errors: int = 0
    inflight: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo(Usage):
    """All that the account has."""

    domain: str = ""
    api: Annotated[ApiUsage, Part(kind=ApiUsage)]
    #: By the name of a tier, such as `R3`, what the account has of it. The limits are those of the tiers then, and the
    #: limits of the whole are 0.
    tiers: Annotated[Mapping[str, Usage], PartsByName(kind=Usage)] = field(default_factory=dict[str, Usage])
