"""The receivers of a session together: what is subscribed, and whether they have room."""

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import client_of
from trunkline.client.limits import WaitingLimits
from trunkline.client.receiver_set import ReceiverSet
from trunkline.client.receivers import Receiver
from trunkline.testing import Broker


class Subscribed(Receiver):
    is_subscribed = True


def receiver_of(owner: ReceiverSet, kind: type[Receiver], *filters: str) -> Receiver:
    receiver = kind(filters, manual_ack=False, limits=WaitingLimits(buffered=1), owner=owner)
    owner.add(receiver)
    return receiver


def test_a_filter_is_left_when_its_last_subscription_goes() -> None:
    receivers = ReceiverSet(lambda: None)
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
        assert not client.may_read()
        if leaves:
            full.close()
        else:
            await full.unsubscribe()
            assert len(full) == 1
        mqtt_broker.publish("b", "2")
        assert (await others.receive()).payload == b"2"
