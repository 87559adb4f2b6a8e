from trunkline.nats.protocol.decoder import from_server
from trunkline.nats.protocol.headers import Status
from trunkline.nats.protocol.operations import OK, PING, PONG, Deliver


def test_what_a_message_says() -> None:
    (one,) = from_server().feed(b"HMSG a 1 26 26\r\nNATS/1.0 503 x\r\nb: c\r\n\r\n  \r\n")
    assert isinstance(one, Deliver)
    (two,) = from_server().feed(b"MSG a 1 0\r\n\r\n")
    assert isinstance(two, Deliver)
    assert (two.status, dict(two.headers)) == (None, {})
    (three,) = from_server().feed(b"HMSG a 1 24 24\r\nNATS/1.0 503 x\r\nb: c\r\n\r\n\r\n")
    assert isinstance(three, Deliver)
    assert (three.status, dict(three.headers)) == (Status(503, "x"), {"b": "c"})
    assert repr([PING, PONG, OK]) == "[PING, PONG, +OK]"
