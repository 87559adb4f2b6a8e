"""How what waits in backlogs is sent after they are gone: as it would have been sent from them."""

import pytest

from tests.broker.disk import Disk, Life
from tests.broker.resharding.test_sessions import one_of
from tests.broker.session.test_cursor import publish, settled
from tests.conformance import raw
from tests.wire import Wire

#: A filter with its options, and the identifier of the subscription.
Subscription = tuple[str, int, int]
#: Topic, payload, QoS, whether it is retained, and the identifiers.
Sent = tuple[str, bytes, int, bool, list[object]]

_IDENTIFIER = 0x0B


async def filled(life: Life, filters: list[Subscription]) -> None:
    """A client is away, comes, does not read on, publishes itself, and goes."""
    wire, _ = await life.stay("away")
    for filter, options, identifier in filters:
        properties = raw.subscription_identifier(identifier) if identifier else b""
        await wire.subscribe((filter, options), properties=properties)
    await wire.abort()
    await settled(life)
    publisher, _ = await life.stay("publisher", expiry=0)
    for qos in range(3):
        await publisher.publish("t", b"%d" % qos, qos=qos, retain=qos == 1)
    await publisher.publish("u", b"other", qos=1)
    own = await life.wire()
    await own.connect("away", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(1))
    while not (await own.expect_type(raw.PUBLISH)).qos:
        pass
    await own.send(*[raw.publish("t", b"own", qos=1, packet_id=5), raw.publish("t", b"own", qos=2, packet_id=6)])
    await own.expect_type(raw.PUBACK)
    await own.expect_type(raw.PUBREC)
    await own.send(raw.ack(raw.PUBREL, 6))
    await own.expect_type(raw.PUBCOMP)
    await own.abort()
    await settled(life)
    await publish(life, "t", b"end")


async def sent(wire: Wire) -> list[Sent]:
    """Up to the end."""
    found = list[Sent]()
    while not found or found[-1][1] != b"end":
        packet = await wire.receive()
        if packet.type == raw.PUBLISH:
            found.append(
                (packet.topic, packet.payload, packet.qos, packet.retain, sorted(packet.all(_IDENTIFIER), key=str))
            )
            if packet.qos:
                await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
        else:
            await wire.send(raw.ack(raw.PUBCOMP, packet.packet_id))
    return found


@pytest.mark.parametrize(
    ("filters", "upgrade"),
    [
        ([("t", 1, 0)], False),
        ([("t", 2, 7)], False),
        ([("t", 1, 3), ("+", 2, 4), ("#", 0, 5), ("u", 1, 6)], False),
        ([("t", raw.options(1, as_published=True), 0), ("+", 1, 0)], False),
        ([("t", raw.options(1, no_local=True), 0)], False),
        ([("t", raw.options(2, no_local=True), 1), ("+", 1, 2)], False),
        ([("t", 2, 0)], True),
        ([("$share/g/x", 1, 9), ("t", 1, 8)], False),
    ],
    ids=["plain", "identifier", "overlapping", "retained", "no local", "no local of two", "upgraded", "beside a group"],
)
async def test_it_is_sent_as_it_would_have_been(filters: list[Subscription], upgrade: bool) -> None:
    found = list[list[Sent]]()
    for is_divided in (False, True):
        disk, settings = Disk(), {"session": {"upgrade_qos": upgrade}}
        async with disk.broker(**settings) as life:
            await filled(life, filters)
        if is_divided:
            disk = one_of(disk, upgrade_qos=upgrade)
        async with disk.broker(**settings) as life:
            wire, _ = await life.stay("away")
            found.append(await sent(wire))
    assert found[1] == found[0]


async def test_what_waited_at_qos_0_comes_although_it_is_not_upgraded_any_more() -> None:
    disk = Disk()
    async with disk.broker(session={"upgrade_qos": True}) as life:
        wire, _ = await life.stay("away")
        await wire.subscribe(("t", 2))
        await wire.abort()
        await settled(life)
        await publish(life, "t", b"0", qos=0)
        await publish(life, "t", b"end", qos=1)
    async with one_of(disk).broker() as life:
        wire, _ = await life.stay("away")
        assert [(payload, qos) for _, payload, qos, *_ in await sent(wire)] == [(b"0", 0), (b"end", 1)]
