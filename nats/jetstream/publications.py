"""Headers by which a publisher says what a stream is to do with a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from trunkline.nats.protocol.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Mapping


class Demands(TypedDict, total=False):
    """What a publisher may ask for."""

    #: A message with the same one is taken once within the stream's duplicate window.
    message_id: str
    #: The message is refused unless this is so.
    expected_stream: str
    expected_last_sequence: int | None
    expected_last_subject_sequence: int | None
    expected_last_message_id: str
    #: Seconds after which the message is gone.
    ttl: float | None


def headers_of(headers: Headers | Mapping[str, str] | None, demands: Demands) -> Headers:
    ttl = demands.get("ttl")
    said = {
        "Nats-Msg-Id": demands.get("message_id", ""),
        "Nats-Expected-Stream": demands.get("expected_stream", ""),
        "Nats-Expected-Last-Sequence": _text(demands.get("expected_last_sequence")),
        "Nats-Expected-Last-Subject-Sequence": _text(demands.get("expected_last_subject_sequence")),
        "Nats-Expected-Last-Msg-Id": demands.get("expected_last_message_id", ""),
        "Nats-TTL": "" if ttl is None else f"{round(ttl * 1e6)}us",
    }
    own = headers.pairs() if isinstance(headers, Headers) else (headers or {}).items()
    return Headers([*own, *[(name, text) for name, text in said.items() if text]])


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
