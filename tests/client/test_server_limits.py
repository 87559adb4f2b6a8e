"""What CONNACK says that the server allows."""

import pytest

from trunkline.client.errors import ClientError, LargerThanServerAccepts, NotOffered
from trunkline.client.server_limits import ServerLimits
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import NO_PROPERTIES

EVERYTHING = ServerLimits.of(NO_PROPERTIES)
LITTLE = ServerLimits.of(
    {
        "receive_maximum": 5,
        "maximum_qos": 0,
        "retain_available": 0,
        "maximum_packet_size": 10,
        "topic_alias_maximum": 3,
        "wildcard_subscription_available": 0,
        "shared_subscription_available": 0,
        "subscription_identifier_available": 0,
    }
)


def test_without_properties_all_is_offered() -> None:
    assert ServerLimits() == EVERYTHING
    EVERYTHING.check_publish(2, True)
    EVERYTHING.check_size(10**9)
    EVERYTHING.check_subscribe([SubscriptionRequest("$share/g/a/#")], True)


@pytest.mark.parametrize(("qos", "retain", "words"), [(1, False, "QoS 0 at most"), (0, True, "no retained")])
def test_publishes_that_are_not_offered(qos: int, retain: bool, words: str) -> None:
    with pytest.raises(NotOffered, match=words):
        LITTLE.check_publish(qos, retain)
    LITTLE.check_publish(0, False)


def test_sizes() -> None:
    LITTLE.check_size(10)
    with pytest.raises(LargerThanServerAccepts, match="a packet of 11 bytes; the server accepts 10"):
        LITTLE.check_size(11)


@pytest.mark.parametrize(
    ("topic_filter", "identified", "words"),
    [("a/+", False, "wildcards"), ("#", False, "wildcards"), ("$share/g/a", False, "shared"), ("a", True, "identif")],
)
def test_subscriptions_that_are_not_offered(topic_filter: str, identified: bool, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        LITTLE.check_subscribe([SubscriptionRequest("a"), SubscriptionRequest(topic_filter)], identified)
    LITTLE.check_subscribe([SubscriptionRequest("a")], False)
