import pytest

from trunkline.nats.client.events import Event, SlowConsumer
from trunkline.nats.client.receivers import Receivers
from trunkline.nats.client.requests import Inbox
from trunkline.nats.client.settings import Settings
from trunkline.nats.client.subscription import Subscription
from trunkline.nats.errors import BadSubject, ClientClosed
from trunkline.nats.protocol.operations import Deliver


class Client:
    """Notes what is written."""

    settings = Settings(max_messages=2)
    is_connected = True

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.told: list[Event] = []
        self.is_closed = False

    def check(self) -> None:
        if self.is_closed:
            raise ClientClosed

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def tell(self, event: Event) -> None:
        self.told.append(event)

    async def flush(self) -> None:
        self.written.append(b"flush")

    def answer(self, subject: str, payload: bytes, **_: object) -> None: ...


def test_what_is_subscribed_to() -> None:
    client = Client()
    receivers = Receivers(client)
    one = receivers.open(Subscription, "a.*", queue="q")
    inbox = Inbox("_INBOX.x", receivers.next_id(), client, print)
    receivers.add(inbox)
    assert client.written == [b"SUB a.* q 1\r\n", b"SUB _INBOX.x.* 2\r\n"]
    assert receivers.subscriptions == [one]
    assert set(receivers.by_id) == {one.sid, inbox.sid}
    assert list(receivers.again()) == client.written


@pytest.mark.parametrize(("subject", "queue"), [("a..b", ""), ("a", "q q"), ("", "")])
def test_what_cannot_be(subject: str, queue: str) -> None:
    client = Client()
    with pytest.raises(BadSubject):
        Receivers(client).open(Subscription, subject, queue=queue)
    client.is_closed = True
    with pytest.raises(ClientClosed):
        Receivers(client).open(Subscription, "a")
    assert client.written == []


def test_without_a_connection() -> None:
    """All of it is told to the next one."""
    client = Client()
    client.is_connected = False
    receivers = Receivers(client)
    one, two = receivers.open(Subscription, "a"), receivers.open(Subscription, "b")
    receivers.move(one, "c")
    receivers.unsubscribe(two)
    assert client.written == []
    assert list(receivers.again()) == [b"SUB c 3\r\n"]


def test_a_move() -> None:
    client = Client()
    receivers = Receivers(client)
    one = receivers.open(Subscription, "a")
    receivers.move(one, "b")
    assert client.written == [b"SUB a 1\r\n", b"UNSUB 1\r\n", b"SUB b 2\r\n"]
    assert receivers.by_id == {b"2": one}
    receivers.unsubscribe(one)
    receivers.move(one, "c")  # it is over
    assert client.written[3:] == [b"UNSUB 2\r\n"]


def test_its_end() -> None:
    client = Client()
    receivers = Receivers(client)
    one, two = receivers.open(Subscription, "a"), receivers.open(Subscription, "b")
    receivers.unsubscribe(one, 2)
    assert not one.is_over
    one.put(Deliver(b"a", b"1", b"", b"", b""))
    one.put(Deliver(b"a", b"1", b"", b"", b""))
    assert one.is_over
    receivers.unsubscribe(one)
    assert receivers.subscriptions == [two]
    receivers.end(None)
    assert two.is_over
    assert receivers.by_id == {}


async def test_a_stop() -> None:
    client = Client()
    receivers = Receivers(client)
    one = receivers.open(Subscription, "a")
    await receivers.stop(one)
    assert client.written[1:] == [b"UNSUB 1\r\n", b"flush"]
    assert not one.is_over
    receivers.unsubscribe(one)
    client.written.clear()
    await receivers.stop(one)
    assert client.written == []


def test_one_that_is_slow() -> None:
    client = Client()
    one = Receivers(client).open(Subscription, "a")
    for _ in range(4):
        one.put(Deliver(b"a", b"1", b"", b"", b""))
    assert client.told == [SlowConsumer(one)]
