"""All messages in the order of the stream, each once: where one is missed, a new consumer begins with it (ADR-17)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.nats.client.events import ConsumerRenewed
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.errors import CannotSubscribe, NoResponders, RequestTimeout, StatusError
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy
from trunkline.nats.jetstream.replies import NotEnabled

if TYPE_CHECKING:
    from trunkline.nats.client.jetstream.message import JetStreamMessage
    from trunkline.nats.client.jetstream.subscribed import Api
    from trunkline.nats.protocol.operations import Deliver

#: Seconds between heartbeats, if nothing else is said.
HEARTBEAT: Final = 5.0
#: Nothing is acknowledged, so that this never passes.
_ACK_WAIT: Final = 22 * 3600.0
#: Seconds between attempts to make a new consumer, doubled up to the largest.
_WAIT: Final = 0.25
_MAX_WAIT: Final = 8.0


def ordered(config: ConsumerConfig) -> ConsumerConfig:
    """This configuration with what makes a consumer ordered.

    Raises:
        CannotSubscribe: it contradicts that.
    """
    for name in ("durable", "name", "deliver_subject", "deliver_group", "backoff", "max_waiting"):
        if getattr(config, name):
            raise CannotSubscribe(f"{name} is not possible for an ordered subscription")
    if config.ack_policy not in (AckPolicy.NONE, ConsumerConfig().ack_policy):
        raise CannotSubscribe("the messages of an ordered subscription are not acknowledged")
    if config.max_deliver not in (0, 1):
        raise CannotSubscribe("the messages of an ordered subscription are delivered once, so max_deliver is 1")
    return replace(
        config,
        ack_policy=AckPolicy.NONE,
        max_deliver=1,
        flow_control=True,
        idle_heartbeat=config.idle_heartbeat or HEARTBEAT,
        ack_wait=_ACK_WAIT,
        memory_storage=True,
        replicas=1,
    )


class _Broken(Exception):
    """Something was missed."""


class OrderedSubscription(PushSubscription):
    def __init__(self, api: Api, *args: Any) -> None:
        super().__init__(api, *args)
        self._consumer_sequence = 0
        self._is_broken = False
        self._renewing = trio.Lock()

    # What comes

    def put(self, wire: Deliver) -> None:
        if not self._is_broken:
            dropped, sequence = self.dropped, self._stream_sequence
            super().put(wire)
            if self.dropped > dropped:  # it found no room, and is to come again when there is some
                self._stream_sequence = sequence
                self._break()

    def _gap(self, first: int, last: int) -> bool:
        self._break()
        return False

    def _missed(self) -> None:
        super()._missed()
        self._break()

    def _break(self) -> None:
        self._is_broken = True
        self._lot.unpark_all()

    # What is taken

    async def receive(self) -> JetStreamMessage:
        while True:
            try:
                return await super().receive()
            except (_Broken, StatusError):  # a status tells of a consumer that is gone
                self._is_broken = True
            await self._renew()

    def _check(self) -> None:
        super()._check()
        if self._is_broken:
            raise _Broken

    async def _renew(self) -> None:
        """A new consumer that begins behind the last message that has come."""
        async with self._renewing:
            wait = _WAIT
            while self._is_broken:
                super()._check()
                try:
                    await self._begin()
                except (NoResponders, RequestTimeout, NotEnabled):  # a server that starts, or a leader that changes
                    await trio.sleep(wait)
                    wait = min(2 * wait, _MAX_WAIT)
                else:
                    self._api.client.tell(ConsumerRenewed(self))

    async def _begin(self) -> None:
        client = self._api.client
        assert self.info is not None
        config = replace(self.info.config, name="")
        if self._stream_sequence:
            policy, first = DeliverPolicy.BY_START_SEQUENCE, self._stream_sequence + 1
            config = replace(config, deliver_policy=policy, start_sequence=first, start_time=None)
        self._forget()
        client.receivers.move(self, client.new_inbox())
        self._consumer_sequence, self._question, self._is_broken = 0, b"", False
        try:
            info = await self._api.new_consumer(self.stream, replace(config, deliver_subject=self.subject))
        except BaseException:
            self._is_broken = True
            raise
        self.bind(self.stream, info.name, info, is_created=True)
