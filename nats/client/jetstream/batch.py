"""Messages that a stream takes all together, or none of them (ADR-50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.nats.jetstream.publications import headers_of
from trunkline.nats.jetstream.replies import parse, publish_ack_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from trunkline.nats.client.jetstream.subscribed import Client
    from trunkline.nats.jetstream.publications import Demands
    from trunkline.nats.jetstream.replies import PublishAck
    from trunkline.nats.protocol.headers import Headers

#: The level of the API, in INFO, from which servers know batches. An older one would take each message by itself.
API_LEVEL: Final = 2
#: The server is asked with the first of so many messages whether it has them.
_ASKED: Final = 100


class Batch:
    """`js.batch()` makes one. The stream takes it at the end of its block, and nothing of it if the block raises."""

    def __init__(self, client: Client, token: str, timeout: float) -> None:
        self._client = client
        self._token = token
        self._timeout = timeout
        self._count = 0
        #: The last message: it is published when it is known whether another one follows.
        self._held: tuple[str, bytes, Headers] | None = None
        #: Of the last message, and so of all of them.
        self.ack: PublishAck | None = None

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
        **demands: Unpack[Demands],
    ) -> None:
        """
        Raises:
            ApiError: the stream takes no batches, or too many are open.
            NoResponders, RequestTimeout: as for `JetStream.publish`.
        """
        every = headers_of(headers, demands)
        await self._release()
        self._count += 1
        every.add("Nats-Batch-Id", self._token)
        every.add("Nats-Batch-Sequence", str(self._count))
        self._held = (subject, payload, every)

    async def _release(self) -> None:
        if self._held is None:
            return
        subject, payload, headers = self._held
        if self._count % _ASKED == 1:
            answer = await self._client.request(subject, payload, headers=headers, timeout=self._timeout)
            if answer.payload:
                parse(answer.payload)
        else:
            await self._client.publish(subject, payload, headers=headers)
        self._held = None

    async def commit(self) -> None:
        """
        Raises:
            WrongLast, ApiError: the stream takes none of it.
            RequestTimeout: nobody knows.
        """
        if self._held is not None:
            subject, payload, headers = self._held
            headers.add("Nats-Batch-Commit", "1")
            answer = await self._client.request(subject, payload, headers=headers, timeout=self._timeout)
            self.ack = publish_ack_of(answer.payload)


def knows_batches(server: Mapping[str, Any]) -> bool:
    level = server.get("api_lvl")
    return isinstance(level, int) and level >= API_LEVEL
