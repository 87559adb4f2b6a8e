from typing import Any

import pytest

from tests.nats.client.jetstream.stub import StubClient
from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.jetstream import NotSupported
from trunkline.nats.client.jetstream.batch import Batch, knows_batches
from trunkline.nats.jetstream.configs import Storage, StreamConfig
from trunkline.nats.jetstream.replies import ApiError, WrongLast


@pytest.mark.parametrize(
    ("server", "knows"), [({}, False), ({"api_lvl": 1}, False), ({"api_lvl": 2}, True), ({"api_lvl": "2"}, False)]
)
def test_which_servers_know_batches(server: dict[str, object], knows: bool) -> None:
    assert knows_batches(server) is knows


async def test_all_or_nothing(server: NatsServer) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        if not knows_batches(client.server):
            with pytest.raises(NotSupported, match="a batch: this server, .*, does not know allow_atomic"):
                async with js.batch():
                    pass
            return
        await js.create_stream(
            StreamConfig(name="batch", storage=Storage.MEMORY, subjects=("batch.>",), allow_atomic=True)
        )
        async with js.batch() as batch:
            for number in range(250):
                await batch.publish("batch.a", b"%d" % number, headers={"A": "b"})
            assert (await js.stream("batch")).state.messages == 0
        assert batch.ack is not None
        assert (batch.ack.sequence, batch.ack.count) == (250, 250)
        found = await js.get("batch", 250)
        assert (found.payload, found.headers["A"]) == (b"249", "b")

        async with js.batch() as batch:
            await batch.publish("batch.b", b"alone", expected_last_sequence=250)
        assert batch.ack is not None
        assert (batch.ack.sequence, batch.ack.count) == (251, 1)

        async def publish(failure: Exception | None = None, **demands: Any) -> None:
            async with js.batch() as batch:
                await batch.publish("batch.a", b"1", **demands)
                await batch.publish("batch.a", b"2")
                if failure is not None:
                    raise failure

        with pytest.raises(WrongLast):
            await publish(expected_last_sequence=7)
        with pytest.raises(KeyError):
            await publish(KeyError("of the user"))
        async with js.batch() as batch:
            pass
        assert batch.ack is None
        assert (await js.stream("batch")).state.messages == 251
        await js.delete_stream("batch")
        await js.create_stream(StreamConfig(name="batch", storage=Storage.MEMORY, subjects=("batch.>",)))
        with pytest.raises(ApiError, match="atomic publish is disabled"):
            await publish()
        alone = Batch(client, "id", 5.0)
        await alone.publish("batch.a", b"1")
        with pytest.raises(ApiError, match="atomic publish is disabled"):  # at the first message, and not at the end
            await alone.publish("batch.a", b"2")
        assert (await js.stream("batch")).state.messages == 0
        await js.delete_stream("batch")


async def test_the_server_is_asked_now_and_then() -> None:
    client = StubClient()
    batch = Batch(client, "id", 5.0)
    for number in range(250):
        await batch.publish("a", b"%d" % number)
    assert [payload for _, payload in client.asked] == [b"0", b"100", b"200"]
    assert len(client.published) == 246
