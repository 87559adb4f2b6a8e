import pytest

from tests.nats.client.test_subscription import Owner
from trunkline.nats.client.message import Message
from trunkline.nats.errors import BadHeaders, NatsError
from trunkline.nats.protocol.headers import Status
from trunkline.nats.protocol.operations import Deliver


def test_a_message() -> None:
    owner = Owner()
    message = Message(Deliver("ä.b".encode(), b"1", b"r.1", b"NATS/1.0 100 Hi\r\na: b\r\n\r\n", b"xy"), owner)
    assert (message.subject, message.payload, message.reply) == ("ä.b", b"xy", "r.1")
    assert (message.status, dict(message.headers)) == (Status(100, "Hi"), {"a": "b"})
    assert repr(message) == "<Message 'ä.b', 2 bytes>"
    message.respond(b"z")
    assert owner.told == [("r.1", b"z", True)]


def test_what_it_has_not() -> None:
    message = Message(Deliver(b"a", b"1", b"", b"", b""), Owner())
    assert (message.reply, message.status, dict(message.headers)) == ("", None, {})
    with pytest.raises(NatsError, match="the message to 'a' asks for no answer"):
        message.respond()
    odd = Message(Deliver(b"a\xff", b"1", b"b\xff", b"", b""), Owner())
    assert (odd.subject, odd.reply, repr(odd)) == ("a\udcff", "b\udcff", r"<Message 'a\udcff', 0 bytes>")
    with pytest.raises(BadHeaders):
        assert Message(Deliver(b"a", b"1", b"", b"nonsense", b""), Owner()).headers
