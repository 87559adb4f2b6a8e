from typing import Any

import pytest

from tests.nats.protocol.test_decoder import BLOCK, msg, plain, pub
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.decoder import Decoder, from_client, from_server
from trunkline.nats.protocol.operations import PING, PONG, Connect, Error, Info, Subscribe, Unsubscribe


@pytest.mark.parametrize("side", ["server", "client"])
def test_what_is_encoded_is_decoded(side: str) -> None:
    block = BLOCK
    if side == "server":
        one: Decoder[Any] = from_server()
        data = [
            encoder.info({"a": 1}),
            encoder.deliver(b"a", b"1", b"x"),
            encoder.deliver(b"a", b"1", b"x", b"r"),
            encoder.deliver(b"a", b"1", b"x", b"r", block),
            encoder.deliver(b"a", b"1", b"", block=block),
            encoder.error("Invalid Subject"),
        ]
        expected: list[object] = [
            Info({"a": 1}),
            msg(payload=b"x"),
            msg(payload=b"x", reply=b"r"),
            msg(payload=b"x", reply=b"r", block=block),
            msg(block=block),
            Error("Invalid Subject"),
        ]
    else:
        one = from_client()
        data = [
            encoder.connect({"a": "ä"}),
            encoder.publish(b"a", b"x"),
            encoder.publish(b"a", b"x", b"r"),
            encoder.publish(b"a", b"x", b"r", block),
            encoder.publish(b"a", b"", block=block),
            encoder.subscribe(b"a", b"1"),
            encoder.subscribe(b"a", b"1", b"q"),
            encoder.unsubscribe(b"1"),
            encoder.unsubscribe(b"1", 4),
        ]
        expected = [
            Connect({"a": "ä"}),
            pub(payload=b"x"),
            pub(payload=b"x", reply=b"r"),
            pub(payload=b"x", reply=b"r", block=block),
            pub(block=block),
            Subscribe(b"a", b"", b"1"),
            Subscribe(b"a", b"q", b"1"),
            Unsubscribe(b"1", 0),
            Unsubscribe(b"1", 4),
        ]
    data += [PING.line, PONG.line]
    expected += [PING, PONG]
    assert [*map(plain, one.feed(b"".join(data)))] == expected
