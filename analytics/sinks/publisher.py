"""Publishing the messages of a task, and knowing that all have arrived.

Messages of QoS 1 are sent ahead of their acknowledgements, as many as the broker allows. What was not acknowledged when
a connection is lost is sent again on the next one, in the same order and with the same numbers.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from trunkline.analytics.sinks.deduplicator import BATCH, ROW
from trunkline.analytics.sinks.messages import Outgoing
from trunkline.analytics.sinks.settings import SinkError, SinkSettings
from trunkline.client import (
    Client,
    ClientError,
    ConnectFailed,
    ConnectionSettings,
    Disconnected,
    ExponentialBackoff,
    LargerThanServerAccepts,
    NotOffered,
    PublishRefused,
    Receipt,
)
from trunkline.client.transport import tls_context

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

_log: Final = logging.getLogger("trunkline.analytics")

#: Messages, or bytes of their payloads, that are collected before any is sent.
_COLLECTED: Final = 64
_CHUNK: Final = 65_536
#: Errors of a single message.
_REFUSALS: Final = (LargerThanServerAccepts, NotOffered, PublishRefused)


class PublishError(RuntimeError):
    """Messages could not be brought to the broker; the text says why, and of a single message which."""


def client_id(prefix: str, query: str, partition: int) -> str:
    """The same for each attempt at a partition, so that the broker closes the connection of an attempt that hangs."""
    return f"{prefix}-{blake2b(query.encode(), digest_size=6).hexdigest()}-{partition}"


class Publisher:
    """Messages of a task, by one connection, made anew as often as it takes."""

    def __init__(
        self,
        settings: SinkSettings,
        client_id: str,
        batch: str,
        sleep: Callable[[float], Awaitable[None]] = trio.sleep,
    ) -> None:
        """`batch` names the query and the batch in each message."""
        self._settings = settings
        self._client_id = client_id
        self._batch = batch
        self._sleep = sleep
        self._retry = ExponentialBackoff(0.1, 5.0, jitter=0.0)
        self._messages: Iterator[Outgoing] = iter(())
        #: To be sent next, and sent without an answer yet.
        self._waiting: deque[Outgoing] = deque()
        self._sent: deque[tuple[Outgoing, Receipt]] = deque()
        #: All messages have arrived.
        self._complete = False
        #: Connections lost in a row without a message that arrived, since when, and the seconds between them.
        self._failures = 0
        self._failing_since = self._waited = 0.0

    def publish(self, messages: Iterable[Outgoing]) -> None:
        """Publish all of them, in their order. At QoS 1 they have all been acknowledged when this returns.

        Raises:
            PublishError: the broker refused one of them, or could not be reached.
            SinkError: the options are not good for connecting.
        """
        self._messages = iter(messages)
        if self._has_next():
            trio.run(self._publish, self._connection_settings())

    def _connection_settings(self) -> ConnectionSettings:
        settings = self._settings
        host, port = settings.address
        made = ConnectionSettings(
            transport="tls" if settings.tls else "tcp",
            host=host,
            port=port,
            client_id=self._client_id,
            username=settings.username or None,
            password=settings.secret(),
            # what computes the next rows may take any time, in which no PINGREQ would be sent
            keep_alive=0,
            connect_timeout=settings.timeout,
            max_inflight=settings.max_inflight,
            ca_file=_path(settings.ca),
            certificate=_path(settings.cert),
            key=_path(settings.key),
        )
        if settings.tls:
            try:
                tls_context(made)
            except OSError as error:
                raise SinkError(str(error)) from None
        return made

    # Connections

    async def _publish(self, settings: ConnectionSettings) -> None:
        while not self._complete:
            try:
                async with Client(settings, max_queued=self._settings.max_inflight) as client:
                    await self._use(client)
            except ClientError as error:
                if not self._complete:
                    await self._wait(error)

    async def _wait(self, error: ClientError) -> None:
        """Have one more connection, after a while that grows.

        Raises:
            PublishError: another one is useless, or nothing has arrived for `retryFor`.
        """
        again = [message for message, receipt in self._sent if not receipt.is_done or receipt.error is not None]
        if len(again) < len(self._sent):
            self._arrived()
        self._waiting.extendleft(reversed(again))
        self._sent.clear()
        if not self._failures:
            self._failing_since, self._waited = trio.current_time(), 0.0
        self._failures += 1
        delay = self._retry.should_retry(self._failures, error)
        spent = max(self._waited, trio.current_time() - self._failing_since)
        limit = self._settings.retry_for
        # without a connection, the error names the address
        words = str(error) if isinstance(error, ConnectFailed) else "{}:{}: {}".format(*self._settings.address, error)
        if delay is None:
            raise PublishError(words) from None
        if spent + delay > limit:
            left, tries = _counted(len(self._waiting), "message"), _counted(self._failures, "connection")
            tried = f"gave up after {tries} in {spent:.1f} s, with at least {left} not sent"
            raise PublishError(f"{words}; {tried}") from None
        if self._failures == 1:
            _log.warning("%s; trying again for %g s (retryFor)", words, limit)
        self._waited += delay
        await self._sleep(delay)

    # Messages

    def _has_next(self) -> bool:
        if not self._waiting:
            self._waiting.extend(islice(self._messages, 1))
        return bool(self._waiting)

    async def _use(self, client: Client) -> None:
        """Publish what is left by this connection."""
        settings = self._settings
        count = size = 0
        while self._has_next():
            message = self._waiting[0]
            numbers: Properties = {"user_property": [(BATCH, self._batch), (ROW, message.row)]}
            receipt = client.publish_nowait(
                message.topic, message.payload, qos=settings.qos, retain=settings.retain, properties=numbers
            )
            self._sent.append((self._waiting.popleft(), receipt))
            count, size = count + 1, size + len(message.payload)
            if count >= _COLLECTED or size >= _CHUNK:
                count = size = 0
                await trio.lowlevel.checkpoint()
                self._take_answers()
            while len(self._sent) >= settings.max_inflight:
                await self._answered(self._sent[0][1].wait)
        while self._sent:
            await self._answered(self._sent[0][1].wait)
        # at QoS 0 only this shows that the broker has taken all and refused nothing
        if not settings.qos:
            await self._answered(client.ping)
        self._complete = True

    async def _answered(self, wait: Callable[[], Awaitable[object]]) -> None:
        with trio.move_on_after(self._settings.timeout) as limit, suppress(*_REFUSALS):
            await wait()
        if limit.cancelled_caught:
            raise Disconnected(f"no answer for {self._settings.timeout:g} s")
        self._take_answers()

    def _take_answers(self) -> None:
        """Let go of what has been answered.

        Raises:
            PublishError: a message was refused.
        """
        while self._sent and (receipt := self._sent[0][1]).is_done:
            message, _ = self._sent[0]
            if isinstance(receipt.error, _REFUSALS):
                raise PublishError(f"row {message.row} to topic {message.topic!r:.200}: {receipt.error}")
            if receipt.error is not None:
                raise receipt.error
            self._sent.popleft()
            self._arrived()

    def _arrived(self) -> None:
        """At QoS 0 nobody knows."""
        if self._settings.qos:
            self._failures = 0


def _path(name: str) -> Path | None:
    return Path(name) if name else None


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
