"""From the server's messages to the receivers that their user reads."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING

import trio

from trunkline.client.dispatch import Dispatch
from trunkline.client.received import Origin, ReceivedMessage
from trunkline.client.receivers import Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.publication import ReceivedPublication
    from trunkline.mqtt.session.receiving import Handover


class ReceiverSet:
    """The receivers of a session. It owns them: they say when they have room again, and when they are closed."""

    def __init__(self, wake: Callable[[], object], call_later: Callable[[Callable[[], object]], object]) -> None:
        """`wake` is called when there is room again. `call_later` calls a function when the client is found to go
        on, or to be at its end."""
        self._dispatch = Dispatch[Receiver]()
        self._wake = wake
        self._call_later = call_later
        #: How many subscriptions each topic filter has.
        self._subscribed = Counter[str]()
        #: Receivers that have no room.
        self._crowded: set[Receiver] = set()
        #: Acknowledgements from other threads, and whether they will be taken.
        self._from_threads = deque[tuple[Callable[[int], object], int]]()
        self._is_awaited = False
        #: Bytes that came of messages that are not complete.
        self._begun = 0
        self._is_over = False

    def open(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._thread = get_ident()

    def end(self) -> None:
        """Nothing more comes."""
        self._is_over = True
        for receiver in self._dispatch.receivers:
            receiver.end()

    def add(self, receiver: Receiver) -> None:
        """It gets the messages of its filters from now on."""
        if self._is_over:
            receiver.end()
            return
        self._dispatch.add(receiver, receiver.filters)
        if receiver.is_subscribed:
            self._subscribed.update(set(receiver.filters))

    def remove(self, receiver: Receiver) -> list[str]:
        """It gets no more. Returns the topic filters that no subscription has any more."""
        if receiver not in self._dispatch:
            return []
        self._dispatch.remove(receiver)
        self._crowded.discard(receiver)
        left: list[str] = []
        if receiver.is_subscribed:
            for each in dict.fromkeys(receiver.filters):
                self._subscribed[each] -= 1
                if not self._subscribed[each]:
                    del self._subscribed[each]
                    left.append(each)
        return left

    def is_subscribed(self, topic_filter: str) -> bool:
        return topic_filter in self._subscribed

    # For receivers

    def closed(self, receiver: Receiver) -> None:
        self.remove(receiver)
        self._wake()

    def acknowledge_later(self, messages: Sequence[ReceivedMessage]) -> None:
        def acknowledge() -> None:
            for message in messages:
                message.ack()

        if messages and get_ident() == self._thread:
            self._call_later(acknowledge)
        elif messages:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._call_later, acknowledge)

    def has_room(self, receiver: Receiver) -> None:
        self._crowded.discard(receiver)
        self._wake()

    # For the connection

    @property
    def is_crowded(self) -> bool:
        """Whether a receiver has no room."""
        return bool(self._crowded)

    def withdraw(self) -> None:
        """The connection is lost. The server delivers QoS 1 messages again, so those that wait are dropped."""
        for receiver in self._dispatch.receivers:
            receiver.withdraw()
        self._crowded = {receiver for receiver in self._crowded if receiver.is_crowded}

    def hand_over(self, handovers: Sequence[Handover], size: int) -> None:
        """Messages came: all of one read of so many bytes."""
        self._begun += size
        if not handovers:
            return
        size, self._begun = self._begun, 0
        found: dict[Receiver, list[ReceivedMessage]] = {}
        for handover in handovers:
            publication = handover.publication
            topics = publication.topics
            receivers = self._dispatch.find(topics[0])
            if len(receivers) == 1 and all(self._dispatch.find(topic) == receivers for topic in topics[1:]):
                # as nearly always
                self._gather(found, handover, receivers[0], topics, publication.payloads, 0)
                continue
            for number, message in enumerate(publication.messages):
                receivers = self._dispatch.find(message.topic)
                if len(receivers) > 1:
                    receivers = _meant(receivers, publication)
                handover.expect(number, len(receivers))
                for receiver in receivers:
                    self._gather(found, handover, receiver, (message.topic,), (message.payload,), number)
        for receiver, messages in found.items():
            receiver.put(messages, size)
            if receiver.is_crowded:
                self._crowded.add(receiver)

    def _gather(
        self,
        found: dict[Receiver, list[ReceivedMessage]],
        handover: Handover,
        receiver: Receiver,
        topics: Sequence[str],
        payloads: Sequence[bytes],
        first: int,
    ) -> None:
        """Some messages of a publication, with one topic or each with its own; `first` is the number of the first."""
        publication, acknowledge, auto_ack = handover.publication, handover.accept, not receiver.manual_ack
        origin = Origin(publication.qos, publication.retain, publication.dup, publication.properties, self._acknowledge)
        found.setdefault(receiver, []).extend(
            [
                ReceivedMessage(topic, payload, origin, auto_ack, number, acknowledge)
                for number, (topic, payload) in enumerate(
                    zip(topics if len(topics) > 1 else repeat(topics[0]), payloads, strict=False), first
                )
            ]
        )

    def _acknowledge(self, acknowledge: Callable[[int], object], number: int) -> None:
        if get_ident() == self._thread:
            acknowledge(number)
            return
        # of many acknowledgements in another thread, one enters the trio run
        self._from_threads.append((acknowledge, number))
        if not self._is_awaited:
            self._is_awaited = True
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._acknowledge_all)

    def _acknowledge_all(self) -> None:
        self._is_awaited = False
        while self._from_threads:
            acknowledge, number = self._from_threads.popleft()
            acknowledge(number)


def _meant(receivers: tuple[Receiver, ...], publication: ReceivedPublication) -> tuple[Receiver, ...]:
    """Those of the receivers of its topic that the server has sent this copy for: all that have one of its subscription
    identifiers, and those without, which cannot be told apart. All of them, when it fits none: a session that is
    resumed may have other identifiers.  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]"""
    identifiers = publication.properties.get("subscription_identifier", ())
    return tuple(each for each in receivers if not each.identifier or each.identifier in identifiers) or receivers
