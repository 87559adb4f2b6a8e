"""Sends the broker's events to an HTTP service: as JSON, in batches, in order.

An event may arrive twice, but never out of order: a batch is sent until it is accepted, and those behind it wait. The
number of waiting events is limited; when the service is down for too long, the oldest are dropped and counted.
"""

import hashlib
import hmac
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Self

import trio
from pydantic import SecretStr, model_validator

from trunkline.config.units import Duration, Secret, Size, Text, TopicFilter, Whole
from trunkline.hooks.points import Point, find_all
from trunkline.hooks.priorities import RECORD_RESULT, WATCH
from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import matches
from trunkline.plugins import Context, setting
from trunkline.plugins.shipped.http_client import HttpClient, HttpFailure, HttpSettings, Url
from trunkline.plugins.shipped.outbox import Outbox
from trunkline.plugins.shipped.webhook_events import FIELDS, EventWriter, PayloadForm

#: Where other callbacks change a value, run after them; where they decide, run before a decision ends the chain.
_PRIORITIES: Final = {"transform": RECORD_RESULT, "decide": WATCH}
#: Failures in a row that raise an alarm.
_ALARM_AFTER: Final = 3
#: Statuses of the 400s that may be temporary.
_PASSING: Final = frozenset({408, 425, 429})


class WebhookSettings(HttpSettings):
    """Events that are sent to an HTTP service."""

    url: Url = setting(..., "Where events are sent, by POST.", min_length=1)
    events: tuple[Text, ...] = setting(
        ("client.connected", "client.disconnected"), "Hook points by name; a `*` at the end matches the rest."
    )
    topics: tuple[TopicFilter, ...] = setting(
        ("#",), ("Topics of the events that are sent, where an event has a message.")
    )
    payload: PayloadForm = setting(
        "auto", "Payloads as text where they are UTF-8 and in Base64 where not, always in Base64, or not at all."
    )
    max_payload_size: Size = setting(64 * 1024, "Longer payloads are not sent, but their size is.", "bytes")
    leave_out: tuple[Text, ...] = setting((), "Fields that are not sent, such as `username` and `peerhost`.")
    secret: Secret = setting(
        SecretStr(""), "Signs each request: `X-Trunkline-Signature` has the HMAC-SHA256 of the body. Empty: none."
    )
    batch_size: Whole = setting(100, "Events of one request.", "events", ge=1)
    batch_bytes: Size = setting(1024 * 1024, "Bytes of events after which a request takes no more.", "bytes", ge=1)
    batch_time: Duration = setting(1.0, "How long an event may wait for others in its request.", "seconds")
    max_queue: Whole = setting(
        10_000, ("Events that may wait to be sent; beyond that the oldest are dropped."), "events", ge=1
    )
    max_queue_bytes: Size = setting(16 * 1024 * 1024, "The same in bytes.", "bytes", ge=1024)
    retry_min: Duration = setting(
        0.5, "How long to wait after a failure; twice as long after each further one.", "seconds", gt=0
    )
    retry_max: Duration = setting(60.0, "The longest wait.", "seconds", gt=0)
    flush_time: Duration = setting(3.0, "How long the plugin may send the rest when it stops.", "seconds", le=4.5)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in self.events:
            try:
                find_all(name)
            except LookupError as error:
                raise ValueError(f"events: {error.args[0]}") from None
        for name in self.leave_out:
            if name not in FIELDS:
                raise ValueError(f"leave_out: no event has a field {name!r}; there are {', '.join(sorted(FIELDS))}")
        return self


class Webhook:
    def __init__(self, context: Context[WebhookSettings]) -> None:
        settings = context.settings
        self._context = context
        self._settings = settings
        self._client = HttpClient(settings)
        self._writer = EventWriter(settings.payload, settings.max_payload_size, frozenset(settings.leave_out))
        self._outbox = Outbox(settings.max_queue, settings.max_queue_bytes)
        #: Taken from the outbox, but not confirmed by the service.
        self._batch = list[bytes]()
        self._run_id = secrets.token_hex(8)
        self._batches = 0
        self._sent = context.counter("sent", "Events that the service has accepted.")
        self._dropped = context.counter(
            "dropped", "Events lost because too many waited, or because the plugin stopped."
        )
        self._refused = context.counter("refused", "Events that the service rejected.")
        self._failures = context.counter("failures", "Requests that failed, and were or will be repeated.")
        context.gauge("queued", "Events that wait.", self._queued)
        context.gauge("queued_bytes", "Bytes of the events that wait.", self._queued_bytes)

    def start(self) -> None:
        for point in dict.fromkeys(point for name in self._settings.events for point in find_all(name)):
            self._context.hooks.add(point, self._observer(point), priority=_PRIORITIES.get(point.kind, 0))

    def _queued(self) -> int:
        return len(self._outbox) + len(self._batch)

    def _queued_bytes(self) -> int:
        return self._outbox.byte_size + sum(len(event) for event in self._batch)

    def _observer(self, point: Point) -> Callable[..., None]:
        place = point.arguments.index("message") if "message" in point.arguments else None
        everything = "#" in self._settings.topics

        def observe(*values: object) -> None:
            if place is not None:
                message = values[place]
                assert isinstance(message, Message)
                if not (everything and message.topic[0] != "$") and not self._is_sent(message.topic):
                    return
            self._put(self._writer.write(point, values, self._context.node, self._context.wall))

        return observe

    def _is_sent(self, topic: str) -> bool:
        return any(matches(filter, topic) for filter in self._settings.topics)

    def _put(self, event: bytes) -> None:
        self._note_dropped(self._outbox.put(event))

    def _note_dropped(self, dropped: int) -> None:
        if dropped:
            if not self._dropped.value:
                self._context.logger.error("too many events wait: the oldest are dropped")
            self._dropped.add(dropped)
            self._context.raise_alarm("dropping", "too many events wait: the oldest are dropped")

    # Sending

    async def run(self) -> None:
        self._note_dropped(self._outbox.put_first(self._context.kept.pop("unsent", [])))
        while True:
            await self._outbox.wait()
            with trio.move_on_after(self._settings.batch_time):
                await self._outbox.wait(min(self._settings.batch_size, self._settings.max_queue))
            self._take()
            await self._deliver()

    def _take(self) -> None:
        self._batch = self._outbox.take(self._settings.batch_size, self._settings.batch_bytes)
        self._batches += 1

    async def _deliver(self) -> None:
        """Send until the service has accepted or rejected the batch."""
        delay, failures = self._settings.retry_min, 0
        while True:
            try:
                wanted = await self._post(self._batch)
                break
            except _Failed as failure:
                failures += 1
                self._failures.add()
                if failures == _ALARM_AFTER:
                    self._context.logger.error("the service does not accept events: %s", failure)
                    self._context.raise_alarm("down", f"the service does not accept events: {failure}")
                # at random, so that clients of a failed service do not all return at once
                await trio.sleep(max(delay * random.uniform(0.5, 1.0), min(failure.wait, self._settings.retry_max)))
                delay = min(2 * delay, self._settings.retry_max)
        self._done(wanted)

    def _done(self, wanted: bool) -> None:
        (self._sent if wanted else self._refused).add(len(self._batch))
        self._batch = list[bytes]()
        self._context.clear_alarm("down")
        if not len(self._outbox):
            self._context.clear_alarm("dropping")

    async def _post(self, batch: Sequence[bytes]) -> bool:
        """Whether the service accepted it. Raises: _Failed: that is unknown."""
        body = b"[" + b",".join(batch) + b"]"
        headers = {"Content-Type": "application/json", "X-Trunkline-Delivery": f"{self._run_id}-{self._batches}"}
        secret = self._settings.secret.get_secret_value()
        if secret:
            signature = hmac.digest(secret.encode(), body, hashlib.sha256).hex()
            headers["X-Trunkline-Signature"] = f"sha256={signature}"
        try:
            answer = await self._client.request("POST", self._settings.url, body, headers, status_only=True)
        except HttpFailure as failure:
            raise _Failed(str(failure)) from None
        if 200 <= answer.status < 300:
            return True
        if 400 <= answer.status < 500 and answer.status not in _PASSING:
            self._context.logger.error(
                "%d events are rejected: the service answers with status %d", len(batch), answer.status
            )
            return False
        raise _Failed(f"the service answers with status {answer.status}", answer.retry_after or 0.0)

    async def stop(self) -> None:
        """Send the waiting events, as far as the time allows. After a failure the service is not tried again. A run
        that is replaced leaves them to the next one."""
        if self._context.replaced:
            while len(self._outbox):
                self._batch += self._outbox.take(len(self._outbox), self._outbox.byte_size)
            self._context.kept["unsent"], self._batch = self._batch, []
        with trio.move_on_after(self._settings.flush_time):
            try:
                while self._batch or len(self._outbox):
                    if not self._batch:
                        self._take()
                    self._done(await self._post(self._batch))
            except _Failed as failure:
                self._context.logger.warning("the service does not accept events: %s", failure)
        lost = self._queued()
        if lost:
            self._dropped.add(lost)
            self._context.logger.warning("%d events were not sent", lost)
        self._context.clear_alarm("down")
        self._context.clear_alarm("dropping")
        await self._client.aclose()


class _Failed(Exception):
    """It is unknown whether the service has received the events."""

    def __init__(self, text: str, wait: float = 0.0) -> None:
        super().__init__(text)
        #: Seconds for which the service requests a pause.
        self.wait = wait
