"""What a service says of itself, in answer to PING, INFO and STATS."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from trunkline.nats.errors import BadService
from trunkline.nats.protocol.subjects import REST, check_pattern, check_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trunkline.nats.errors import ServiceError

#: The queue group of endpoints for which nothing else is said.
DEFAULT_QUEUE: Final = "q"
#: Where services are asked what they are.
DEFAULT_PREFIX: Final = "$SRV"

_TYPE: Final = "io.nats.micro.v1.{}_response"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_BEFORE: Final = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
#: The grammar of semver.org, version 2: numbers have no zeros before them.
_VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_BEFORE}(?:\.{_BEFORE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def check_named(name: str, kind: str) -> None:
    """
    Raises:
        BadService: it is no name of a service or an endpoint.
    """
    if not _NAME.fullmatch(name):
        raise BadService(f"{name!r}: the name of {kind} has letters, digits, - and _")


def check_version(version: str) -> None:
    """
    Raises:
        BadService: it is none of semver.org.
    """
    if not _VERSION.fullmatch(version):
        raise BadService(f"{version!r} is no version as 1.0.2 or 2.0.0-rc.1 are")


def check_group(prefix: str) -> None:
    """
    Raises:
        BadSubject, BadService: nothing can stand behind it, and it is not empty, for a group that adds nothing.
    """
    if prefix:
        check_pattern(prefix)
    if prefix.split(".")[-1] == REST:
        raise BadService(f"{prefix!r}: nothing stands behind > in the subject of an endpoint")


def check_group_of_queue(queue: str) -> None:
    """
    Raises:
        BadSubject: it is no name of a queue group, and not empty, for none.
    """
    if queue:
        check_queue(queue)


def frozen(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """A copy that nobody changes.

    Raises:
        BadService: a key or a value is no text.
    """
    found: dict[Any, Any] = dict(metadata or {})
    for key, value in found.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise BadService(f"metadata: {key!r}: {value!r} is no pair of texts")
    return MappingProxyType(found)


@dataclass(slots=True)
class EndpointStatistics:
    requests: int = 0
    errors: int = 0
    #: Code and text of the last one, or empty.
    last_error: str = ""
    #: Seconds in the handler, of all requests that have ended.
    processing: float = 0.0

    def failed(self, error: ServiceError) -> None:
        self.errors += 1
        self.last_error = str(error)


@dataclass(frozen=True, slots=True)
class EndpointDescription:
    name: str
    subject: str
    #: Empty: each instance gets each request.
    queue: str
    metadata: Mapping[str, str]

    def info(self) -> dict[str, Any]:
        return self._place() | {"metadata": dict(self.metadata)}

    def stats(self, statistics: EndpointStatistics) -> dict[str, Any]:
        """Times are nanoseconds."""
        spent = round(statistics.processing * 1e9)
        return self._place() | {
            "num_requests": statistics.requests,
            "num_errors": statistics.errors,
            "last_error": statistics.last_error,
            "processing_time": spent,
            "average_processing_time": spent // statistics.requests if statistics.requests else 0,
        }

    def _place(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "queue_group": self.queue}


@dataclass(frozen=True, slots=True)
class ServiceDescription:
    name: str
    version: str
    #: Of this instance; no other one has it.
    id: str
    #: When it has begun, in ISO 8601 and UTC.
    started: str
    text: str = ""
    metadata: Mapping[str, str] = field(default_factory=lambda: frozen(None))

    def __post_init__(self) -> None:
        """
        Raises:
            BadService: name or version cannot be.
        """
        check_named(self.name, "a service")
        check_version(self.version)

    def ping(self) -> dict[str, Any]:
        return self._said("ping")

    def info(self, endpoints: Iterable[dict[str, Any]]) -> dict[str, Any]:
        return self._said("info") | {"description": self.text, "endpoints": list(endpoints)}

    def stats(self, endpoints: Iterable[dict[str, Any]]) -> dict[str, Any]:
        return self._said("stats") | {"started": self.started, "endpoints": list(endpoints)}

    def subjects(self, prefix: str, verb: str) -> tuple[str, str, str]:
        """Where all services, those of this name, and this instance are asked."""
        return f"{prefix}.{verb}", f"{prefix}.{verb}.{self.name}", f"{prefix}.{verb}.{self.name}.{self.id}"

    def _said(self, kind: str) -> dict[str, Any]:
        return {
            "type": _TYPE.format(kind),
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "metadata": dict(self.metadata),
        }
