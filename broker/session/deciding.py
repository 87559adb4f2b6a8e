"""The decision about what a SUBSCRIBE or UNSUBSCRIBE asks for: of hooks, settings and access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from trunkline.actors import Paced
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session.access import Question
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import CLIENT_READ_FILTER, CLIENT_SUBSCRIBE, CLIENT_UNSUBSCRIBE
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Subscribe, SubscriptionRequest, Unsubscribe
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import STREAM_PREFIX, parse_shared, plain_filter, validate_filter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.broker.session.context import SessionContext
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.properties import Properties

#: Of an entry of a SUBSCRIBE: the request to subscribe, or the refusal.
Outcome: TypeAlias = SubscriptionRequest | Deny | Withhold
#: The same for an UNSUBSCRIBE.
FilterOutcome: TypeAlias = str | Deny | Withhold


def takes_long(context: SessionContext, packet: Subscribe | Unsubscribe) -> bool:
    """Whether others have to have their turn meanwhile."""
    services = context.services
    if isinstance(packet, Subscribe):
        waits, count = services.access.waits or services.hooks.is_async(CLIENT_SUBSCRIBE), len(packet.requests)
        # a hook may make any filter one of a stream
        of_streams = services.hooks.client_subscribe or any(_is_of_stream(each.filter) for each in packet.requests)
        waits = waits or bool(of_streams and services.feeds.is_away)
    else:
        waits, count = services.hooks.is_async(CLIENT_UNSUBSCRIBE), len(packet.filters)
    return waits or count >= FILTERS_AT_ONCE


def check(context: SessionContext, filters: Iterable[str], client: ClientInfo) -> None:
    """
    Raises:
        ProtocolError: one of them is not a topic filter, and no plugin supports its form.  # [MQTT-4.7.0-1] #
            [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    """
    max_levels = context.config.mqtt.max_topic_levels
    for filter in filters:
        try:
            validate_filter(filter, max_levels)
        except ProtocolError:
            part = context.services.hooks.transform(CLIENT_READ_FILTER, client, filter)
            if not isinstance(part, str) or part == filter:
                raise
            validate_filter(part, max_levels)


async def subscribe(context: SessionContext, packet: Subscribe, client: ClientInfo) -> list[Outcome]:
    hooks = context.services.hooks
    outcomes: list[Outcome] = []
    async for asked in Paced(packet.requests, FILTERS_AT_ONCE):
        outcome = await hooks.transform_async(CLIENT_SUBSCRIBE, client, asked, packet.properties)
        if isinstance(outcome, SubscriptionRequest):
            outcome = _unfit(context, outcome) or outcome
        outcomes.append(outcome)
    await _ask_streams(context, outcomes, packet.properties)
    async for place, outcome in Paced(enumerate(outcomes), FILTERS_AT_ONCE):
        if isinstance(outcome, SubscriptionRequest):
            outcomes[place] = await _denied(context, outcome, client) or outcome
    return outcomes


async def unsubscribe(context: SessionContext, packet: Unsubscribe, client: ClientInfo) -> list[FilterOutcome]:
    hooks = context.services.hooks
    outcomes: list[FilterOutcome] = []
    async for filter in Paced(packet.filters, FILTERS_AT_ONCE):
        changed = await hooks.transform_async(CLIENT_UNSUBSCRIBE, client, filter, packet.properties)
        outcomes.append(changed)
    return outcomes


def _unfit(context: SessionContext, request: SubscriptionRequest) -> Deny | None:
    """The reason that refuses it for every client, if any."""
    mqtt = context.config.mqtt
    try:
        validate_filter(request.filter, mqtt.max_topic_levels)  # a hook may have replaced what the decoder saw
    except ProtocolError:
        return Deny(Reason.TOPIC_FILTER_INVALID)
    shared = parse_shared(request.filter)
    if shared is not None and not mqtt.shared_subscriptions:
        return Deny(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
    filter = plain_filter(request.filter)
    if not mqtt.wildcard_subscriptions and ("+" in filter or "#" in filter):
        return Deny(Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
    return None


async def _ask_streams(context: SessionContext, outcomes: list[Outcome], properties: Properties) -> None:
    """Refuse what the streams refuse: they may be elsewhere, and are asked once."""
    asked = {
        place: outcome.filter
        for place, outcome in enumerate(outcomes)
        if isinstance(outcome, SubscriptionRequest) and _is_of_stream(outcome.filter)
    }
    if not asked:
        return
    refusals = await context.services.feeds.refusals(context.session, list(asked.values()), properties)
    for place, refusal in zip(asked, refusals, strict=True):
        outcomes[place] = refusal or outcomes[place]


def _is_of_stream(filter: str) -> bool:
    return filter.startswith(STREAM_PREFIX) or plain_filter(filter).startswith(STREAM_PREFIX)


async def _denied(context: SessionContext, request: SubscriptionRequest, client: ClientInfo) -> Deny | Withhold | None:
    access, mqtt = context.services.access, context.config.mqtt
    looks_granted = mqtt.subscribe_denied == "grant"
    if looks_granted and not access.waits:
        return None  # each delivery is checked instead
    denial = await access.refusal(Question(client, "subscribe", plain_filter(request.filter), request.qos))
    if denial is not None and looks_granted:
        # deliveries cannot wait for an answer, so what has to look granted is not subscribed at all
        return Withhold(Reason(min(request.qos, mqtt.max_qos)))
    return denial
