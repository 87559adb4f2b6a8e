import pytest

from tests.nats.client.jetstream.stub import StubApi, info, message
from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.jetstream.message import JetStreamMessage
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.errors import BufferFull, ClientClosed, NatsError, NotJetStream
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, Storage, StreamConfig
from trunkline.nats.protocol.operations import Deliver

REPLY = "$JS.ACK.s.c.1.1.1.1700000000000000000.0"


def received(policy: AckPolicy = AckPolicy.EXPLICIT, wire: Deliver | None = None) -> tuple[JetStreamMessage, StubApi]:
    api = StubApi()
    subscription = api.client.open(lambda *args: PushSubscription(api, *args), "d")
    subscription.bind("s", "c", info(config=ConsumerConfig(ack_policy=policy)), is_created=False)
    return JetStreamMessage(wire or message(1, b"x"), subscription), api


def sent(api: StubApi) -> list[tuple[str, bytes, str]]:
    return api.client.published


@pytest.mark.parametrize(
    ("settle", "payload"),
    [
        (lambda found: found.ack(), b"+ACK"),
        (lambda found: found.nak(), b"-NAK"),
        (lambda found: found.nak(1.5), b'-NAK {"delay": 1500000000}'),
        (lambda found: found.term(), b"+TERM"),
        (lambda found: found.term("it cannot be read"), b"+TERM it cannot be read"),
    ],
)
async def test_the_first_one_counts(settle, payload: bytes) -> None:  # type: ignore[no-untyped-def]
    """Each of them ends the exchange, and what is asked for behind it does nothing."""
    found, api = received()
    settle(found)
    assert found.is_settled
    found.ack()
    found.nak(2)
    found.term()
    found.in_progress()
    await found.ack_sync()
    assert sent(api) == [(REPLY, payload, "")]
    assert api.client.asked == []


@pytest.mark.parametrize(
    ("version", "payload"),
    [
        ("2.9.10", b"+TERM"),
        ("2.10.3", b"+TERM"),
        ("2.10.4", b"+TERM why"),
        ("2.11.0-RC.1", b"+TERM why"),
        ("", b"+TERM"),
    ],
)
async def test_an_older_server_is_told_no_reason(version: str, payload: bytes) -> None:
    found, api = received()
    api.client.server = {"version": version}
    found.term("why")
    assert sent(api) == [(REPLY, payload, "")]


async def test_nothing_is_acknowledged_behind_the_end_of_the_client() -> None:
    found, api = received()
    api.client.is_closed = True
    with pytest.raises(ClientClosed):
        found.ack()
    assert (sent(api), found.is_settled) == ([], False)


async def test_more_time_can_be_asked_for_often() -> None:
    found, api = received()
    found.in_progress()
    found.in_progress()
    assert not found.is_settled
    found.ack()
    assert [payload for _, payload, _ in sent(api)] == [b"+WPI", b"+WPI", b"+ACK"]


async def test_a_consumer_that_wants_none() -> None:
    found, api = received(AckPolicy.NONE)
    found.in_progress()
    found.nak()
    found.ack()
    await found.ack_sync()
    assert (sent(api), api.client.asked) == ([], [])


async def test_what_could_not_be_sent_can_be_tried_again() -> None:
    found, api = received()
    api.client.failure = BufferFull("full")
    with pytest.raises(BufferFull):
        found.ack()
    with pytest.raises(BufferFull):
        await found.ack_sync()
    assert not found.is_settled
    api.client.failure = None
    found.ack()
    assert found.is_settled


async def test_an_acknowledgement_that_is_awaited() -> None:
    found, api = received()
    await found.ack_sync()
    assert api.client.asked == [(REPLY, b"+ACK")]
    assert found.is_settled
    found.nak()
    assert sent(api) == []


@pytest.mark.parametrize("reply", [b"", b"other", b"$JS.ACK.s.c.1.1.1.1", b"$JS.ACK.s.c.x.1.1.1.0"])
async def test_a_message_of_no_consumer(reply: bytes) -> None:
    found, api = received(wire=Deliver(b"a", b"1", reply, b"", b"x"))
    with pytest.raises(NotJetStream):
        _ = found.origin
    if not reply.startswith(b"$JS.ACK."):
        for settle in (found.ack, found.nak, found.term, found.in_progress):
            with pytest.raises(NotJetStream):
                settle()
        with pytest.raises(NotJetStream):
            await found.ack_sync()
        assert (sent(api), api.client.asked) == ([], [])


@pytest.mark.parametrize(
    ("reply", "domain"),
    [
        ("$JS.ACK.s.c.3.5.7.1700000000000000000.2", ""),
        ("$JS.ACK._.hash.s.c.3.5.7.1700000000000000000.2", ""),
        ("$JS.ACK.hub.hash.s.c.3.5.7.1700000000000000000.2", "hub"),
        ("$JS.ACK.hub.hash.s.c.3.5.7.1700000000000000000.2.random.and.more", "hub"),
    ],
)
async def test_where_it_comes_from_and_goes_back(reply: str, domain: str) -> None:
    """The reply subject is used as it came, whatever its form."""
    found, api = received(wire=Deliver(b"a", b"1", reply.encode(), b"", b"x"))
    origin = found.origin
    assert (origin.stream, origin.consumer, origin.domain) == ("s", "c", domain)
    assert (origin.delivered, origin.stream_sequence, origin.consumer_sequence, origin.pending) == (3, 5, 7, 2)
    found.ack()
    assert sent(api) == [(reply, b"+ACK", "")]


async def test_it_is_not_answered() -> None:
    found, api = received()
    with pytest.raises(NatsError, match="is acknowledged, and not answered"):
        found.respond(b"x")
    assert sent(api) == []


async def test_what_servers_make_of_it(server: NatsServer) -> None:
    """Handed back, a message comes again; acknowledged or given up, it does not."""
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="acks", storage=Storage.MEMORY, subjects=("acks",)))
        for number in range(4):
            await js.publish("acks", b"%d" % number)
        config = ConsumerConfig(ack_wait=30.0, max_ack_pending=100)
        async with js.subscribe("acks", config=config) as found:
            first = [await found.receive() for _ in range(4)]
            assert [message.origin.stream_sequence for message in first] == [1, 2, 3, 4]
            first[0].ack()
            first[1].nak()
            first[2].term("no good")
            first[3].in_progress()
            again = await found.receive()
            assert (again.payload, again.origin.delivered) == (b"1", 2)
            await again.ack_sync()
            await first[3].ack_sync()
            state = await js.consumer("acks", found.consumer)
            assert (state.ack_pending, state.ack_floor.stream) == (0, 4)
            later = await js.publish("acks", b"later")
            (await found.receive()).nak(0.05)
            late = await found.receive()
            assert (late.origin.stream_sequence, late.origin.delivered) == (later.sequence, 2)
        await js.delete_stream("acks")
