import os
import zlib

import pytest
from wsproto.events import BytesMessage

from tests.broker.net.below import Below
from tests.broker.net.web_client import Client, bomb, compressed, frame, layer, request
from trunkline.broker.net.deflate import INFLATED_AT_ONCE
from trunkline.broker.net.websocket import MAX_SLOW


@pytest.mark.parametrize(
    ("offer", "agreed"),
    [
        ("permessage-deflate", True),
        ("x-else, permessage-deflate; server_max_window_bits=10, permessage-deflate", True),
        ("permessage-deflate; client_max_window_bits=many", False),
        ("permessage-deflate; server_max_window_bits=8", False),
        ("permessage-bzip2", False),
    ],
)
async def test_compression_is_agreed_on(offer: str, agreed: bool) -> None:
    for on in (True, False):
        below = Below()
        made = layer(below, compression=on)
        below.receive(request(Sec_WebSocket_Extensions=offer))
        assert (b"Sec-WebSocket-Extensions: permessage-deflate" in below.sent) == (agreed and on)
        below.writes.clear()
        made.send(b"plain?")
        below.turn()
        assert (below.sent == b"\x82\6plain?") != (agreed and on)


async def test_compressed_messages_both_ways() -> None:
    below, made, client = compressed()
    for payload in (b"a" * 1000, os.urandom(5_000), b""):
        below.receive(client.frames.send(BytesMessage(payload)))
        below.receive(frame(b"not compressed"))
        assert below.data == payload + b"not compressed"
        below.got.clear()
    made.send(b"b" * 1000)
    below.turn()
    assert len(below.sent) < 100
    assert client.data() == b"b" * 1000


async def test_control_frames_within_a_compressed_message() -> None:
    below, _, _ = compressed()
    deflate = zlib.compressobj(wbits=-15)
    packed = (deflate.compress(b"abc" * 100) + deflate.flush(zlib.Z_SYNC_FLUSH))[:-4]
    first, second = packed[:5], packed[5:]
    below.receive(
        frame(first, fin=False, rsv1=True) + frame(b"?", opcode=9) + frame(second, opcode=0) + frame(b"plain")
    )
    assert below.failed is None
    assert below.data == b"abc" * 100 + b"plain"


#: Most that a turn passes on of compressed messages. Bytes can be inflated to a thousand times as many.
MAX_STEP = MAX_SLOW + 1_040 * INFLATED_AT_ONCE


async def test_a_bomb_goes_off_in_steps() -> None:
    below, made, _ = compressed()
    size = 20_000_000
    below.receive(*bomb(size))
    steps = 0
    while made._busy:  # pyright: ignore[reportPrivateUsage]
        assert below.got
        assert max(len(event) for event in below.got if isinstance(event, bytes)) <= MAX_STEP
        steps += 1
        below.turn()
    assert below.data == bytes(size)
    assert steps >= size // MAX_STEP - 1
    assert below.calls == ["pause", "resume"]
    below.receive(frame(b"and on"))
    assert below.data.endswith(b"and on")


async def test_a_pause_holds_the_rest_of_a_bomb() -> None:
    below, made, _ = compressed()
    below.receive(*bomb(5_000_000))
    before = len(below.data)
    made.pause()
    made.read_now()
    for _ in range(3):
        below.turn()
    assert len(below.data) == before
    assert set(below.calls) == {"pause"}
    made.resume()
    while len(below.data) < 5_000_000:
        below.turn()
    assert below.calls[-1] == "resume"


async def test_bytes_after_the_end_of_a_compressed_stream_are_not_kept() -> None:
    below, _, _ = compressed()
    deflate = zlib.compressobj(wbits=-15)
    ended = deflate.compress(b"abc") + deflate.flush()
    below.receive(frame(ended + b"\0", rsv1=True))
    assert below.data == b"abc"
    below.receive(frame(ended + bytes(100), rsv1=True))
    close = Client(below).close()
    assert close is not None
    assert close.code == 1007


async def test_what_is_not_deflated_is_refused() -> None:
    below, _, _ = compressed()
    below.receive(frame(b"\xff" * 50, rsv1=True))
    close = Client(below).close()
    assert close is not None
    assert close.code == 1007
