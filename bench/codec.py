"""The cost of the codec: one line for each figure.

Run it on a quiet machine, `python bench/codec.py`; `--quick` runs each only briefly, to see that it works. Figures are
the best of several runs: what disturbs a run only makes it slower.
"""

from __future__ import annotations

import sys
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.frames import encode_publish, publish_pieces, publish_whole
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Connect, Puback, Publish
from trunkline.mqtt.topics import matches, validate_filter
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUICK = "--quick" in sys.argv
RUNS: Final = 2 if QUICK else 15
SECONDS: Final = 0.0005 if QUICK else 0.02
CHUNK: Final = 65_536
PAYLOAD: Final = bytes(64)


def best(run: Callable[[], object], operations: int = 1) -> float:
    """Seconds an operation takes, `operations` of which happen in a run."""
    count, taken = 1, 0.0
    while taken < SECONDS:
        count *= 2
        taken = repeated(run, count)
    return min(repeated(run, count) for _ in range(RUNS)) / count / operations


def repeated(run: Callable[[], object], count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        run()
    return perf_counter() - started


def show(name: str, seconds: float, note: str = "") -> None:
    print(f"{name:<52}{seconds * 1e9:>12,.0f} ns{1 / seconds:>14,.0f} /s{note}")


def chunk(packets: Sequence[bytes]) -> tuple[bytes, int]:
    """As many packets, in turn, as fit into what one `recv` brings; and how many that are."""
    chosen: list[bytes] = []
    size = 0
    while size + len(packets[len(chosen) % len(packets)]) <= CHUNK:
        chosen.append(packets[len(chosen) % len(packets)])
        size += len(chosen[-1])
    return b"".join(chosen), len(chosen)


def numbered(message: Publish, packet_id: int) -> Publish:
    message.packet_id = packet_id
    return message


def decode(name: str, version: Version, packets: Sequence[bytes]) -> None:
    data, count = chunk(packets)
    decoder = Decoder(version=version)
    if len(decoder.feed(data)) != count or decoder.error is not None:
        raise SystemExit(f"{name}: {decoder.error}")
    show(name, best(lambda: decoder.feed(data), count))


def decoding(version: Version) -> None:
    topic = "bench/topic/17"
    decode(f"decode QoS 0, MQTT {version}", version, [encode(Publish(topic, PAYLOAD), version)])
    several = [encode(Publish(f"bench/topic/{number}", PAYLOAD), version) for number in range(1000)]
    decode(f"decode QoS 0 to 1,000 topics, MQTT {version}", version, several)
    lengths = [encode(Publish(topic, bytes(60 + number % 8)), version) for number in range(8)]
    decode(f"decode QoS 0 of changing lengths, MQTT {version}", version, lengths)
    for qos in (1, 2):
        packets = [encode(numbered(Publish(topic, PAYLOAD, qos), number), version) for number in range(1, 101)]
        decode(f"decode QoS {qos}, MQTT {version}", version, packets)
    decode(f"decode PUBACK, MQTT {version}", version, [encode(Puback(number), version) for number in range(1, 101)])
    single = encode(Publish(topic, PAYLOAD), version)
    decoder = Decoder(version=version)
    decoder.feed(single)
    show(f"decode QoS 0, one a feed, MQTT {version}", best(lambda: decoder.feed(single)))
    large = encode(Publish(topic, bytes(CHUNK)), version)
    halves = large[:CHUNK], large[CHUNK:]
    show(f"decode 64 KiB in two pieces, MQTT {version}", best(lambda: [decoder.feed(half) for half in halves]))


def encoding(version: Version) -> None:
    message = Message("bench/topic/17", PAYLOAD, 1)
    for qos in (0, 1):
        publish_pieces(message, version, qos, False)
        cached = best(partial(publish_pieces, message, version, qos, False))
        show(f"publish_pieces again, QoS {qos}, MQTT {version}", cached)

    def first() -> None:
        message.wire3 = message.wire5 = None
        publish_whole(message, version)

    show(f"publish_whole for the first time, MQTT {version}", best(first))
    show(f"encode_publish, QoS 1, MQTT {version}", best(lambda: encode_publish(message, version, qos=1, packet_id=7)))
    acknowledgement = Puback(7)
    show(f"encode PUBACK, MQTT {version}", best(lambda: encode(acknowledgement, version)))


def connecting() -> None:
    def run(data: bytes) -> None:
        decoder = Decoder()
        if not decoder.feed(data):
            raise SystemExit(f"CONNECT: {decoder.error}")

    plain = encode(Connect("client-17", username="user", password=b"secret"), Version.V5)
    basis = best(lambda: run(plain))
    show("decode CONNECT", basis)
    for name, pairs in (
        ("of 13 bytes", [(f"k{number:03}", f"v{number:03}") for number in range(1000)] * 5),
        ("of growing length", [(f"k{number}", f"v{number}") for number in range(4500)]),
        ("beyond ASCII", [("ä", f"ö{number % 100:02}") for number in range(5000)]),
    ):
        data = encode(Connect("client-17", properties={"user_property": pairs}), Version.V5)
        seconds = best(partial(run, data))
        each = f"{(seconds - basis) / len(pairs) * 1e9:8.0f} ns each"
        show(f"decode CONNECT, {len(pairs):,} user properties {name}", seconds, each)


def topics() -> None:
    show("validate_filter", best(lambda: validate_filter("sensors/+/temperature/#")))
    show("matches", best(lambda: matches("sensors/+/temperature/#", "sensors/kitchen/temperature/now")))


def main() -> None:
    for version in (Version.V311, Version.V5):
        decoding(version)
    for version in (Version.V311, Version.V5):
        encoding(version)
    connecting()
    topics()


if __name__ == "__main__":
    main()
