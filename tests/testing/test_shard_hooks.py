"""What a test registers, all shards have."""

from tests.conformance import raw
from tests.testing.three import at, three
from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import Deny, Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason


async def test_callbacks_of_the_test_run_at_all_shards() -> None:
    seen: list[str] = []
    given = Hooks()

    @given.on("client.connected")
    def connected(client: ClientInfo) -> None:
        seen.append(client.client_id)

    async with testing.broker(workers=3, hooks=given, users={"ada": "secret"}) as b:

        @b.hooks.on("message.publish")
        def refuse(client: ClientInfo, message: Message) -> Deny | None:
            return Deny(Reason.NOT_AUTHORIZED) if message.topic == "no" else None

        for shard in range(3):
            wire = Wire(b.connect())
            await wire.connect(at(b, shard), username="ada", password=b"secret")
            await wire.send(raw.publish("no", b"", qos=1, packet_id=1))
            assert (await wire.expect_type(raw.PUBACK)).reason == Reason.NOT_AUTHORIZED
            await wire.abort()
        assert seen == [at(b, shard) for shard in range(3)]
        assert len(b.hooks.listing("client.connected")) == 1
        assert b.hooks.remove("message.publish", refuse)
        assert not b.hooks.remove("message.publish", refuse)


async def test_a_hook_that_raises_at_any_shard_fails_the_test() -> None:
    async with testing.broker(workers=3) as b:

        @b.hooks.on("client.connected")
        def fail(client: ClientInfo) -> None:
            raise ValueError(client.client_id)

        async with three(b):
            assert [str(error) for error in b.hook_errors] == [at(b, shard) for shard in range(3)]
            b.hook_errors.clear()
