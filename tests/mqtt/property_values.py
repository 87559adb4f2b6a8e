"""Properties of every packet as clients may send them: drawn from the table of the codec, so that a new property joins
by itself. Bounded: a block has at most a few hundred bytes."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.property_codec import PROPERTIES, Kind, decode_properties, encode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.versions import Version

# the longest that one regular expression takes, and one more
TEXTS = st.one_of(st.text("aé€𝄞 ", max_size=5), st.sampled_from(["v" * 63, "v" * 64]))
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.FLAG: st.integers(0, 1),
    Kind.TWO_BYTES: st.sampled_from([0, 1, 65_535]),
    Kind.COUNT: st.sampled_from([1, 65_535]),
    Kind.FOUR_BYTES: st.sampled_from([1_000_000, 0xFFFF_FFFE]),  # seconds that do not pass in a test
    Kind.SIZE: st.sampled_from([100_000, 0xFFFF_FFFF]),
    Kind.NUMBER: st.sampled_from([1, 127, 128, 268_435_455]).map(lambda number: [number]),
    Kind.STRING: TEXTS,
    Kind.TOPIC: TEXTS.map(lambda text: f"to/{text}"),
    Kind.BINARY: st.binary(max_size=6),
    Kind.PAIRS: st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3),
}


@cache
def blocks(place: PacketType, *without: str) -> st.SearchStrategy[bytes]:
    """What a client may send in a packet, as it is on the wire without its length."""
    some = {row.name: VALUES[row.kind] for row in PROPERTIES if place in row.client and row.name not in without}
    drawn = st.fixed_dictionaries({}, optional=some)
    return drawn.map(lambda properties: _inner(encode_properties(properties)))  # type: ignore[arg-type]


def _inner(block: bytes) -> bytes:
    reader = Reader(block, 0, len(block), Version.V5)
    reader.variable_integer()
    return block[reader.position :]


def decoded(block: bytes, place: PacketType) -> Properties:
    """As the broker's decoder makes them."""
    whole = encode_length(block) + block
    return decode_properties(Reader(whole, 0, len(whole), Version.V5, from_client=True), place)


def encode_length(block: bytes) -> bytes:
    return bytes([len(block)]) if len(block) < 128 else bytes([len(block) % 128 | 128, len(block) // 128])
