"""The receivers of a session together: what is subscribed, and whether they have room."""

from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import client_of
from tests.client.rig import publish
from tests.conformance import raw
from trunkline.client.limits import WaitingLimits
from trunkline.client.receiver_set import ReceiverSet
from trunkline.client.receivers import Receiver
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.session.receiving import Handover, Receiving
from trunkline.mqtt.versions import Version
from trunkline.testing import Broker

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties


class Subscribed(Receiver):
    is_subscribed = True


def receiver_of(owner: ReceiverSet, kind: type[Receiver], *filters: str) -> Receiver:
    receiver = kind(filters, manual_ack=False, limits=WaitingLimits(buffered=1), owner=owner)
    owner.add(receiver)
    return receiver


def test_a_filter_is_left_when_its_last_subscription_goes() -> None:
    receivers = ReceiverSet(lambda: None, lambda function: function())
    first = receiver_of(receivers, Subscribed, "a", "b", "a")
    second = receiver_of(receivers, Subscribed, "a")
    plain = receiver_of(receivers, Receiver, "b")
    assert receivers.remove(plain) == []
    assert receivers.remove(first) == ["b"]
    assert receivers.remove(first) == []
    assert receivers.is_subscribed("a")
    assert receivers.remove(second) == ["a"]
    assert not receivers.is_subscribed("a")


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_receiver_that_is_gone_holds_up_nobody(
    mqtt_broker: Broker, autojump_clock: MockClock, leaves: bool
) -> None:
    """Neither one that is closed nor one that is unsubscribed, whose messages may never be read."""
    async with client_of(mqtt_broker, max_buffered=1) as client, await client.subscribe("b") as others:
        full = await client.subscribe("a")
        mqtt_broker.publish("a", "1")
        await wait_all_tasks_blocked()
        assert client._receivers.is_crowded
        if leaves:
            full.close()
        else:
            await full.unsubscribe()
            assert len(full) == 1
        mqtt_broker.publish("b", "2")
        assert (await others.receive()).payload == b"2"


@pytest.mark.parametrize(
    ("identifiers", "expected"),
    [
        ([1], ["one", "plain"]),
        ([1, 2], ["one", "two", "plain"]),
        ([], ["plain"]),
        ([3], ["plain"]),
    ],
    ids=["a copy each", "one copy for both", "of the plain one", "of an earlier process"],
)
def test_overlapping_subscriptions_with_identifiers(identifiers: list[int], expected: list[str]) -> None:
    """Once per subscription, whether the server sends one copy or several."""
    assert received({"one": 1, "two": 2, "plain": 0}, identifiers) == expected


@pytest.mark.parametrize("identifiers", [[], [7]])
def test_identifiers_that_fit_none_do_not_count(identifiers: list[int]) -> None:
    assert received({"one": 1, "two": 2}, identifiers) == ["one", "two"]


def received(subscriptions: dict[str, int], identifiers: list[int]) -> list[str]:
    """Which of the subscriptions, with their identifiers, get a message with these."""
    receivers = ReceiverSet(lambda: None, lambda function: function())
    found: dict[str, Receiver] = {}
    for name, identifier in subscriptions.items():
        limits = WaitingLimits()
        found[name] = Subscribed(["#"], manual_ack=False, limits=limits, owner=receivers)
        found[name].identifier = identifier
        receivers.add(found[name])
    properties: Properties = {"subscription_identifier": identifiers} if identifiers else {}
    receivers.hand_over([Handover(publish(properties=properties), None, Receiving())], 1)
    return [name for name, receiver in found.items() if len(receiver)]


@pytest.mark.parametrize("topics", [["t"] * 3, ["t", "u"], ["t", "u", "t"]], ids=" ".join)
def test_messages_that_came_together_are_handed_over_each(topics: list[str]) -> None:
    receivers = ReceiverSet(lambda: None, lambda function: function())
    receiver = receiver_of(receivers, Receiver, "#")
    packets = [raw.publish(topic, b"%d" % number, version=4) for number, topic in enumerate(topics)]
    size = len(packets[0])
    wire, given = b"".join(packets), topics[:1] if len(set(topics)) == 1 else topics
    batch = PublishBatch(given, 0x30, Version.V311, wire, range(0, len(wire), size), [])
    receivers.hand_over([Handover(batch, None, Receiving())], len(wire))
    got = [(message.topic, message.payload) for message in iter(receiver.poll, None) if message]
    assert got == [(topic, b"%d" % number) for number, topic in enumerate(topics)]


async def test_each_gets_its_own_from_the_broker(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with (
        client_of(mqtt_broker) as client,
        await client.subscribe("a/#", qos=1, properties={"subscription_identifier": [1]}) as wide,
        await client.subscribe("a/+", qos=1, properties={"subscription_identifier": [2]}) as narrow,
    ):
        for topic in ("a/b", "a/b/c"):
            mqtt_broker.publish(topic, "x", qos=1)
        await wait_all_tasks_blocked()
        assert (len(wide), len(narrow)) == (2, 1)
