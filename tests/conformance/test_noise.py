"""Packets with bytes changed, cut and doubled: whatever a client sends, it harms nobody but itself."""

import random

import pytest

from tests.conformance import raw
from tests.conformance.lab import Lab
from tests.conformance.statements import shows
from tests.wire import Wire


def _conversation(lab: Lab, version: int) -> list[bytes]:
    topic = lab.topic("t")
    v5 = version == 5
    properties = raw.user_property("a", "b") + raw.content_type("c") + raw.message_expiry(9) if v5 else b""
    will = raw.Will(lab.topic("will"), properties=raw.will_delay(0) if v5 else b"")
    return [
        raw.connect(lab.id("noise"), version=version, will=will, username="u", password="p"),
        raw.subscribe(1, (topic, 2), (lab.topic("+/#"), 1), version=version),
        raw.publish(topic, b"0", version=version, properties=properties),
        raw.publish(topic, b"1", qos=1, packet_id=2, version=version, properties=properties),
        raw.publish(topic, b"2", qos=2, packet_id=3, version=version, retain=True),
        raw.ack(raw.PUBREL, 3),
        raw.ack(raw.PUBREC, 1, 0 if v5 else None),
        raw.ack(raw.PUBACK, 1),
        raw.ack(raw.PUBCOMP, 2),
        raw.unsubscribe(4, topic, version=version),
        raw.PINGREQ,
        raw.disconnect(),
    ]


def _spoil(packets: list[bytes], dice: random.Random) -> bytes:
    data = bytearray(b"".join(packets))
    for _ in range(dice.randint(1, 4)):
        # The CONNECT is spared more often than not, so that the rest is reached.
        start = dice.choice([0, len(packets[0]), len(packets[0])])
        position = dice.randrange(start, len(data))
        match dice.randrange(5):
            case 0:
                data[position] = dice.randrange(256)
            case 1:
                data[position] ^= 1 << dice.randrange(8)
            case 2:
                del data[position : position + dice.randint(1, 5)]
            case 3:
                data[position:position] = dice.randbytes(dice.randint(1, 5))
            case _:
                data[position:position] = data[max(0, position - 20) : position]
        if not data:
            break
    return bytes(data)


@shows("MQTT-4.13.1-1", "MQTT3-4.8.0-1")
@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("seed", range(8))
async def test_spoilt_packets(lab: Lab, version: int, seed: int) -> None:
    dice = random.Random(f"{version} {seed}")
    witness = await lab.client("witness")
    await witness.subscribe((lab.topic("witness"), 1))
    for _ in range(25):
        noise = await Wire.open(lab.host, lab.port, version=version)
        async with noise:
            await noise.send(_spoil(_conversation(lab, version), dice))
            await noise.end()
            await noise.rest()
    other = await lab.client("other")
    await other.publish(lab.topic("witness"), b"x", qos=1)
    await witness.take_publish(lab.topic("witness"), b"x", qos=1)
    await witness.ping()
