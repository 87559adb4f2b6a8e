import pytest

from tests.nats.client.jetstream.scripted_api import Answer, Api, scripted
from tests.nats.client.stores import IN_MEMORY, jetstream
from tests.nats.servers import NatsServer
from trunkline.nats.client.jetstream.pipeline import Pipeline
from trunkline.nats.errors import NoResponders, RequestTimeout
from trunkline.nats.jetstream.configs import StreamConfig
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.replies import ApiError

REFUSED = {"error": {"code": 503, "err_code": 10077, "description": "maximum bytes exceeded"}}


@pytest.mark.parametrize("most", [1, 7, 1000])
async def test_all_are_taken_in_order(server: NatsServer, most: int) -> None:
    async with jetstream(server) as js:
        await js.create_stream(StreamConfig(name="s", subjects=("s",), **IN_MEMORY))
        with Pipeline(js, most) as pipeline:
            for number in range(100):
                await pipeline.publish("s", b"%d" % number)
            await pipeline.finish()
        assert [int((await js.get("s", number + 1)).payload) for number in range(100)] == list(range(100))


async def test_no_more_wait_than_are_allowed() -> None:
    """The answers come only when so many are asked for."""
    held = list[bytes]()

    async def answer(api: Api, subject: str, payload: bytes) -> Answer:
        held.append(payload)
        assert len(held) <= 3
        return None

    async with scripted(answer, seconds=0.2) as (js, api):
        with Pipeline(js, 3) as pipeline:
            for number in range(3):
                await pipeline.publish("s", b"%d" % number)
            with pytest.raises(RequestTimeout, match=r"no acknowledgement of publication 1 within 0\.2 s"):
                await pipeline.publish("s", b"3")
        await js.client.flush()
        assert api.asked == ["s"] * 3


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (REFUSED, ApiError),
        ((b"NATS/1.0 503\r\n\r\n", b""), NoResponders),
        (b"nonsense", BadReply),
    ],
)
async def test_one_that_is_not_taken(said: Answer, error: type[Exception]) -> None:
    async def answer(_: Api, __: str, payload: bytes) -> Answer:
        return said if payload == b"1" else {"stream": "s", "seq": 1}

    async with scripted(answer) as (js, _):
        with Pipeline(js, 10) as pipeline:
            for number in range(5):
                await pipeline.publish("s", b"%d" % number)
            with pytest.raises(error) as refused:
                await pipeline.finish()
            assert "_INBOX" not in str(refused.value)
            await pipeline.settle()
            await pipeline.finish()


async def test_one_that_is_lost() -> None:
    async def answer(_: Api, __: str, payload: bytes) -> Answer:
        return None if payload == b"1" else {"stream": "s", "seq": 1}

    async with scripted(answer) as (js, _):
        with Pipeline(js, 10) as pipeline:
            for number in range(3):
                await pipeline.publish("s", b"%d" % number)
            with pytest.raises(RequestTimeout, match="publication 2 was lost: a later one is acknowledged"):
                await pipeline.finish()
