"""How a subscription gets its consumer: one that is there and fits, or a new one (ADR-15)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from trunkline.nats.client.jetstream.pull import MAX_BYTES, PullSubscription
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.subscribed import LOOKS
from trunkline.nats.errors import CannotSubscribe
from trunkline.nats.jetstream.checks import MISSED_HEARTBEATS, Wanted, check_existing, complete
from trunkline.nats.jetstream.configs import ConsumerConfig
from trunkline.nats.jetstream.pulls import MAX_MESSAGES
from trunkline.nats.jetstream.replies import ConsumerMissing, NameTaken
from trunkline.nats.protocol.subjects import check_name, check_pattern

if TYPE_CHECKING:
    from trunkline.nats.client.jetstream.subscribed import Api
    from trunkline.nats.jetstream.pulls import Ahead
    from trunkline.nats.jetstream.replies import ConsumerInfo

P = TypeVar("P", bound=PushSubscription)


def wanted_of(
    subject: str,
    stream: str,
    consumer: str,
    durable: str,
    config: ConsumerConfig | None,
    *,
    queue: str = "",
    is_pull: bool = False,
    missed_heartbeats: int = MISSED_HEARTBEATS,
) -> Wanted:
    """From what a user says.

    Raises:
        CannotSubscribe: it contradicts itself.
    """
    own = config or ConsumerConfig()
    if durable and own.durable not in ("", durable):
        raise CannotSubscribe(f"two durable consumers are named, {durable!r} and {own.durable!r}")
    if durable:
        own = replace(own, durable=durable)
    wanted = Wanted(
        subject=subject,
        stream=stream,
        consumer=consumer,
        queue=queue,
        is_pull=is_pull,
        missed_heartbeats=missed_heartbeats,
        config=own,
        is_configured=config is not None,
    )
    return complete(wanted)


async def subscribe_push(api: Api, wanted: Wanted, kind: type[P], max_messages: int | None, max_bytes: int | None) -> P:
    """
    Raises:
        CannotSubscribe: the consumer that is there is another one.
        ApiError: as for `consumer` and `create_consumer`.
    """
    wanted = await _located(api, wanted)
    info = await _existing(api, wanted)
    is_created = info is None
    subject = wanted.config.deliver_subject if info is None else info.config.deliver_subject
    # before the consumer is created, as the server sees by it whether somebody uses a durable one
    subscription = api.client.receivers.open(
        partial(kind, api),
        subject or api.client.new_inbox(),
        queue=wanted.queue,
        max_messages=max_messages,
        max_bytes=max_bytes,
    )
    subscription.missed_heartbeats = wanted.missed_heartbeats
    try:
        if info is None:
            config = replace(wanted.config, deliver_subject=subscription.subject)
            try:
                info = await api.new_consumer(wanted.stream, config)
            except NameTaken:  # another one was faster
                is_created = False
                info = await api.consumer(wanted.stream, wanted.name)
                check_existing(info, wanted)
                if not wanted.queue:
                    raise
                api.client.receivers.move(subscription, info.config.deliver_subject)
        subscription.bind(wanted.stream, info.name, info, is_created=is_created)
    except BaseException:
        api.client.receivers.unsubscribe(subscription)
        raise
    return subscription


async def subscribe_pull(api: Api, wanted: Wanted, ahead: Ahead) -> PullSubscription:
    """Raises as `subscribe_push` does."""
    wanted = await _located(api, wanted)
    info = await _existing(api, wanted)
    is_created = False
    if info is None and not wanted.consumer:
        try:
            info = await api.new_consumer(wanted.stream, wanted.config)
            is_created = True
        except NameTaken:  # another one was faster
            info = await api.consumer(wanted.stream, wanted.name)
            check_existing(info, wanted)
    subscription = api.client.receivers.open(
        partial(PullSubscription, api), f"{api.client.new_inbox()}.*", max_messages=MAX_MESSAGES, max_bytes=MAX_BYTES
    )
    subscription.ahead = ahead
    name = wanted.consumer if info is None else info.name
    subscription.bind(wanted.stream, name, info, is_created=is_created)
    return subscription


async def _located(api: Api, wanted: Wanted) -> Wanted:
    """With the stream."""
    if wanted.subject:
        check_pattern(wanted.subject)
    for name, kind in ((wanted.stream, "stream"), (wanted.name, "consumer")):
        if name:
            check_name(name, kind)
    return wanted if wanted.stream else replace(wanted, stream=await api.stream_of(wanted.subject))


async def _existing(api: Api, wanted: Wanted) -> ConsumerInfo | None:
    """The consumer, if it is named and there. One that is to be there and is not is an error, but for pulling."""
    if not wanted.name:
        return None
    try:
        info = await api.consumer(wanted.stream, wanted.name)
    except ConsumerMissing:
        if wanted.consumer and not wanted.is_pull:
            raise
        return None
    for wait in LOOKS:  # a server may see a little later that the last subscription has ended
        if not info.push_bound or wanted.queue:
            break
        await trio.sleep(wait)
        info = await api.consumer(wanted.stream, wanted.name)
    check_existing(info, wanted)
    return info
