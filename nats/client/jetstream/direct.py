"""Several messages of a stream with one request, told by any server that has them (ADR-31)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from trunkline.nats.client.jetstream.stored import PENDING, told_directly
from trunkline.nats.errors import BadHeaders, NoResponders, NotSupported, RequestTimeout
from trunkline.nats.jetstream.fields import BadReply, Moment
from trunkline.nats.protocol.headers import Status

if TYPE_CHECKING:
    from trunkline.nats.client.jetstream.stored import StoredMessage
    from trunkline.nats.client.jetstream.subscribed import Client
    from trunkline.nats.client.message import Message

_UP_TO: Final = "Nats-UpTo-Sequence"
_END: Final = 204
_NOT_FOUND: Final = 404
#: What servers that know no batches say to a request that asks for nothing else.
_EMPTY: Final = Status(408, "Empty Request")


class DirectApi(Protocol):
    """Of JetStream, what is needed here."""

    client: Client
    prefix: str
    #: Seconds for an answer.
    timeout: float


@dataclass(frozen=True, slots=True)
class StoredBatch:
    messages: tuple[StoredMessage, ...]
    #: How many more there are.
    pending: int = 0
    #: Of the last messages of subjects: the sequence that they are up to, which asks for more of the same moment.
    up_to: int = 0


class DirectReader:
    """What `js.direct("orders")` gives. The stream must allow direct answers. A batch is in memory as a whole."""

    def __init__(self, api: DirectApi, stream: str) -> None:
        self._api = api
        self._stream = stream

    async def batch(
        self,
        messages: int,
        *,
        sequence: int = 1,
        since: float | None = None,
        subject: str = "",
        max_bytes: int = 0,
    ) -> StoredBatch:
        """Up to so many messages from a sequence on, or `since` a moment in seconds since the epoch; those that match a
        subject, if one is given. It ends with the first message that brings it to `max_bytes`.

        Raises:
            NotSupported: the server knows no batches, which came with nats-server 2.11.
            NoResponders: the stream does not allow direct answers, or is not there. Some servers say nothing then.
            RequestTimeout: not all came within the timeout of `js`.
        """
        if messages < 1 or max_bytes < 0:
            raise ValueError(f"a batch of {messages} messages, and {max_bytes} bytes")
        start = {"seq": sequence} if since is None else {"start_time": Moment().write(since)}
        return await self._ask({"batch": messages, "next_by_subj": subject, "max_bytes": max_bytes, **start})

    async def lasts(
        self,
        *subjects: str,
        messages: int = 0,
        sequence: int = 0,
        up_to: int = 0,
        until: float | None = None,
    ) -> StoredBatch:
        """The last message of each subject that matches, of up to 1,024, all as they were at one moment: when `up_to`
        was the last sequence, or at the moment `until` in seconds since the epoch. Otherwise, as they are now. If only
        so many `messages` are wanted, the others are those from the next `sequence` on, with the `up_to` of the batch
        before. Raises as `batch` does, and `ApiError` for too many subjects."""
        if not subjects:
            raise ValueError("of which subjects?")
        end = {"up_to_seq": up_to} if until is None else {"up_to_time": Moment().write(until)}
        return await self._ask({"multi_last": subjects, "batch": messages, "seq": sequence, **end})

    async def _ask(self, body: dict[str, Any]) -> StoredBatch:
        api, found = self._api, list["StoredMessage"]()
        subject = f"{api.prefix}.DIRECT.GET.{self._stream}"
        payload = json.dumps({name: value for name, value in body.items() if value}).encode()
        try:
            async with api.client.request_many(subject, payload, timeout=api.timeout) as answers:
                async for answer in answers:
                    status = _status(answer)
                    if status is not None and status.code == _END:
                        return _ended(found, answer)
                    if status is not None and status.code == _NOT_FOUND:
                        return StoredBatch(())
                    if status == _EMPTY or (status is None and PENDING not in answer.headers):
                        version = api.client.server.get("version")
                        raise NotSupported(f"a batch of messages: this server, {version}, tells one at a time")
                    found.append(told_directly(self._stream, answer))
        except NoResponders:
            hint = f"there is no stream {self._stream!r}, or it does not have allow_direct"
            raise NoResponders(subject, hint) from None
        raise RequestTimeout(f"{subject}: {len(found)} messages came within {api.timeout:g} s, and no end")


def _status(answer: Message) -> Status | None:
    try:
        return answer.status
    except BadHeaders as error:
        raise BadReply(f"{answer!r} is no message of a stream") from error


def _ended(found: list[StoredMessage], answer: Message) -> StoredBatch:
    headers = answer.headers
    try:
        return StoredBatch(tuple(found), int(headers[PENDING]), int(headers.get(_UP_TO, "0")))
    except (KeyError, ValueError) as error:
        raise BadReply(f"{answer!r} is no end of a batch") from error
