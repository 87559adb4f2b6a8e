"""Which limits concern a connection."""

import pytest

from trunkline.broker.metrics import LimitKind
from trunkline.broker.rate_limits import MIN_SWEPT, Buckets, ClientRegistry, NodeLimits, RateLimits, limit_of
from trunkline.config.listener_settings import ListenerRateSettings
from trunkline.config.mqtt_settings import RateSettings


def kinds(buckets: Buckets) -> list[LimitKind]:
    return [limit.kind for limit in (*buckets.messages, *buckets.bytes)]


def test_a_limit_has_its_key_and_value_for_the_log() -> None:
    limit = limit_of(LimitKind.CLIENT_MESSAGES, RateSettings(client_messages="60/m burst 5"))
    assert limit is not None
    assert (limit.rate, limit.burst, limit.text) == (1, 5, "client_messages = 60/m burst 5")
    assert limit_of(LimitKind.CLIENT_BYTES, RateSettings()) is None


def test_without_rates_nothing_is_limited() -> None:
    limits = RateLimits(NodeLimits(RateSettings()), ListenerRateSettings())
    assert limits.is_unlimited
    assert limits.of_client("a", 0.0) is None


@pytest.mark.parametrize("key", [key for key in RateSettings.model_fields if key not in ("connections", "over")])
def test_every_rate_limits_something(key: str) -> None:
    limits = RateLimits(NodeLimits(RateSettings.model_validate({key: "1/s"})), ListenerRateSettings())
    client = limits.of_client("a", 0.0)
    of_client = [] if client is None else [client.connections, client.messages, client.bytes]
    found = [*filter(None, of_client)]
    found += [*limits.of_connection().messages, *limits.of_connection().bytes]
    assert [limit.text for limit in found] == [f"{key} = 1/s"]
    assert limits.is_unlimited == ("connections" in key)


def test_rates_of_the_node_and_of_a_listener_hold_together() -> None:
    node = NodeLimits(RateSettings(messages="9/s", bytes="9/s"))
    limits = RateLimits(node, ListenerRateSettings(messages="1/s", bytes="1/s"))
    assert kinds(limits.of_connection()) == [
        LimitKind.NODE_MESSAGES,
        LimitKind.LISTENER_MESSAGES,
        LimitKind.NODE_BYTES,
        LimitKind.LISTENER_BYTES,
    ]
    other = RateLimits(node, ListenerRateSettings())
    assert other.of_connection().messages[0] is limits.of_connection().messages[0]


def test_a_listeners_rates_of_each_client_replace_those_of_the_node() -> None:
    node = NodeLimits(RateSettings(client_messages="9/s", connection_bytes="9/s", over="refuse"))
    own = RateLimits(node, ListenerRateSettings(client_messages="1/s", connection_bytes="0", over="pause"))
    general = RateLimits(node, ListenerRateSettings())
    mine, theirs = own.of_client("a", 0.0), general.of_client("a", 0.0)
    assert mine is not None
    assert theirs is not None
    assert (mine.messages and mine.messages.rate, theirs.messages and theirs.messages.rate) == (1, 9)
    assert (kinds(own.of_connection()), kinds(general.of_connection())) == ([], [LimitKind.CONNECTION_BYTES])
    assert (own.pauses, general.pauses) == (True, False)
    assert general.of_client("a", 0.0) is RateLimits(node).of_client("a", 0.0)


def test_what_a_client_drew_is_known_until_it_does_not_matter() -> None:
    registry = ClientRegistry(RateSettings(client_messages="1/s"))
    limit = registry.get("greedy", 0.0).messages
    assert limit is not None
    limit.take(100, 0.0)
    for number in range(MIN_SWEPT):
        registry.get(str(number), 50.0)
    assert registry.get("greedy", 50.0).messages is limit
    assert len(registry) == 2
    for number in range(MIN_SWEPT):
        registry.get(str(number), 101.0)
    assert registry.get("greedy", 101.0).messages is not limit


def test_a_refused_message_takes_nothing() -> None:
    buckets = Buckets()
    rates = RateSettings(messages="10/s", bytes="10/s")
    buckets.add(limit_of(LimitKind.NODE_MESSAGES, rates), limit_of(LimitKind.NODE_BYTES, rates))
    assert buckets.take_or_refuse(8, 0.0) is None
    refusing = buckets.take_or_refuse(3, 0.0)
    assert refusing is buckets.bytes[0]
    assert (buckets.messages[0].available(0.0), buckets.bytes[0].available(0.0)) == (9, 2)


def test_the_limit_that_takes_longest_is_named() -> None:
    buckets = Buckets()
    assert buckets.exceeded(0.0) is None
    buckets.add(
        limit_of(LimitKind.NODE_MESSAGES, RateSettings(messages="2/s")),
        limit_of(LimitKind.NODE_BYTES, RateSettings(bytes="10/s")),
    )
    buckets.take(4, 11, 0.0)
    exceeded = buckets.exceeded(0.0)
    assert exceeded is not None
    assert (exceeded.kind, exceeded.ready_at) == (LimitKind.NODE_MESSAGES, 1.5)
    assert buckets.exceeded(1.5) is None
