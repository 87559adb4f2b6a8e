"""A client that is cancelled at each step of its tasks in turn, and one whose connection is lost after each byte."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.client.opening import EVERY_SECOND
from tests.client.scripted import ScriptedServer, well
from trunkline.client.client import Client
from trunkline.client.session_client import SessionClient
from trunkline.mqtt.packets import Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe

#: More steps than any run has.
MAX_STEPS = 1000


def answer(packet: Packet) -> Sequence[Packet]:
    """The server also sends a message of each QoS to a subscription, and releases that of QoS 2."""
    match packet:
        case Subscribe():
            messages = [Publish("t", b"%d" % qos, qos) for qos in range(3)]
            for message in messages[1:]:
                message.packet_id = 10 + message.qos
            return [*well(packet), *messages]
        case Pubrec():
            return [Pubrel(packet.packet_id)]
        case _:
            return well(packet)


class CancelAtStep(trio.abc.Instrument):
    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if not self._left:
            self._scope.cancel()


async def use(client: Client | SessionClient, done: list[str]) -> None:
    async with client, await client.subscribe("t", qos=2) as messages:
        for qos in range(3):
            await client.publish("x", b"%d" % qos, qos=qos)
        async for message in messages:
            if message.qos == 2:
                break
        done.append("used")
    done.append("left")


@pytest.mark.parametrize("client_class", [Client, SessionClient])
async def test_cancelled_at_each_step(autojump_clock: MockClock, client_class: type[Client | SessionClient]) -> None:
    for step in range(1, MAX_STEPS):
        server = ScriptedServer(answer)
        done: list[str] = []
        with trio.CancelScope() as scope:
            instrument = CancelAtStep(step, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                with trio.fail_after(100):
                    await use(client_class(open_stream=server.open_stream), done)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert server.is_closed or not server.opened, step
        names = server.names()
        assert names.count("Disconnect") <= 1
        if "Disconnect" in names:
            assert names[-1] == "Disconnect", step
        if not scope.cancelled_caught and done == ["used", "left"] and not scope.cancel_called:
            assert step > 30, "the scenario is none"
            return
    pytest.fail("it has more steps")


async def test_a_connection_lost_after_each_byte(autojump_clock: MockClock) -> None:
    for number in range(MAX_STEPS):
        server = ScriptedServer(answer)
        server.cut_after = number
        done: list[str] = []
        with trio.fail_after(100):
            client = SessionClient(open_stream=server.open_stream, retry=EVERY_SECOND, retry_first=True)
            async with client:
                subscription = await client.subscribe("t", qos=2)
                for qos in range(3):
                    await client.publish("x", b"%d" % qos, qos=qos)
                await subscription.unsubscribe()
                done.append("used")
        assert isinstance(server.packets[-1], Disconnect)
        published = [packet for packet in server.packets if isinstance(packet, Publish)]
        for qos in (1, 2):
            first, *again = (packet for packet in published if packet.qos == qos)
            assert not first.dup
            assert all(packet.dup and packet.packet_id == first.packet_id for packet in again)
        assert [packet.qos for packet in published] == sorted(packet.qos for packet in published)
        # after its PUBREC, a message is not sent again
        kinds = [type(packet) for packet in server.packets if isinstance(packet, Publish | Pubrel)]
        assert Publish not in kinds[kinds.index(Pubrel) :]
        acknowledged = [packet for packet in server.packets if isinstance(packet, Puback | Pubrec)]
        assert all(packet.packet_id == (11 if isinstance(packet, Puback) else 12) for packet in acknowledged)
        assert isinstance(server.packets[-2], Unsubscribe | Pubcomp | Puback | Pubrec)
        if server.cut_after is not None:
            assert number > 30, "the scenario is none"
            return
    pytest.fail("it has more bytes")
