import json
from base64 import b64encode

import pytest

from tests.nats.client.jetstream.scripted_api import Answer, Api, scripted
from tests.nats.client.stores import IN_MEMORY, jetstream, knows_ttl
from tests.nats.servers import NatsServer
from trunkline.nats.jetstream.configs import StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import ApiError, MessageMissing, StreamMissing
from trunkline.nats.protocol.headers import Headers


async def test_any_server_tells_what_the_leader_tells(server: NatsServer) -> None:
    async with jetstream(server) as js:
        await js.create_stream(StreamConfig(name="orders", subjects=("orders.>",), allow_direct=True, **IN_MEMORY))
        await js.publish("orders.a", b"1", headers=Headers([("A", "x"), ("A", "y"), ("Nats-Sequence", "forged")]))
        await js.publish("orders.b", b"")
        await js.publish("orders.a", b"3")
        for choice in ({"sequence": 1}, {"sequence": 2, "next": "orders.a"}, {"last": "orders.b"}, {"last": "*.a"}, {}):
            told = await js.get("orders", direct=True, **choice)  # type: ignore[arg-type]
            known = await js.get("orders", **choice)  # type: ignore[arg-type]
            assert told == known
            assert list(told.headers.pairs()) == list(known.headers.pairs())
        for missing in ({"sequence": 9}, {"last": "orders.z"}, {"sequence": 3, "next": "orders.b"}):
            with pytest.raises(MessageMissing) as caught:
                await js.get("orders", direct=True, **missing)  # type: ignore[arg-type]
            assert (caught.value.code, caught.value.err_code) == (404, 10037)


async def test_a_stream_that_allows_no_direct_answers(server: NatsServer) -> None:
    async with jetstream(server) as js:
        await js.create_stream(StreamConfig(name="orders", subjects=("orders.>",), **IN_MEMORY))
        await js.publish("orders.a", b"1")
        if not knows_ttl(js):
            pytest.skip("it says nothing then, which the next test has")
        assert (await js.get("orders", 1, direct=True)).payload == b"1"
        with pytest.raises(StreamMissing):
            await js.get("none", 1, direct=True)


MESSAGE = {"subject": "a", "seq": 1, "time": "2023-11-14T22:13:20Z", "data": b64encode(b"known").decode()}


@pytest.mark.parametrize("said", [None, (b"NATS/1.0 503\r\n\r\n", b"")])
async def test_where_nobody_answers_directly_the_leader_is_asked(said: Answer) -> None:
    async def answer(_: Api, subject: str, payload: bytes) -> Answer:
        return said if ".DIRECT." in subject else {"message": MESSAGE}

    async with scripted(answer, seconds=0.3) as (js, api):
        assert (await js.get("s", last="a", direct=True)).payload == b"known"
        assert api.asked == ["$JS.API.DIRECT.GET.s.a", "$JS.API.STREAM.MSG.GET.s"]


async def test_a_subject_is_asked_for_by_a_subject_if_it_can_be() -> None:
    bodies = list[bytes]()

    async def answer(_: Api, subject: str, payload: bytes) -> Answer:
        bodies.append(payload)
        head = b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: 7\r\nNats-Time-Stamp: 2023-11-14T22:13:20.5Z\r\n\r\n"
        return head, b"told"

    async with scripted(answer) as (js, api):
        found = await js.get("s", last="a", direct=True)
        assert (found.sequence, found.payload, found.time, dict(found.headers)) == (7, b"told", 1_700_000_000.5, {})
        await js.get("s", last="a.*", direct=True)
        await js.get("s", 3, direct=True)
        assert api.asked == ["$JS.API.DIRECT.GET.s.a", "$JS.API.DIRECT.GET.s", "$JS.API.DIRECT.GET.s"]
        assert bodies[0] == b""
        assert [json.loads(body) for body in bodies[1:]] == [{"last_by_subj": "a.*"}, {"seq": 3}]


async def test_a_request_that_is_refused() -> None:
    async def answer(*_: object) -> Answer:
        return b"NATS/1.0 408 Bad Request\r\n\r\n", b""

    async with scripted(answer) as (js, _):
        with pytest.raises(ApiError, match="Bad Request") as caught:
            await js.get("s", 1, direct=True)
        assert caught.value.code == 408


@pytest.mark.parametrize(
    "said",
    [
        b"x",
        (b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: 7\r\n\r\n", b""),
        (b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: x\r\nNats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n", b""),
        (b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: 7\r\nNats-Time-Stamp: now\r\n\r\n", b""),
        (b"NATS/1.0\r\nnonsense\r\n\r\n", b""),
    ],
)
async def test_nonsense(said: Answer) -> None:
    async def answer(*_: object) -> Answer:
        return said

    async with scripted(answer) as (js, _):
        with pytest.raises(BadReply, match="is no message of a stream"):
            await js.get("s", 1, direct=True)
