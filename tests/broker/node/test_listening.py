"""Listeners by name; `tests/management/operations/test_listeners.py` asks as an operator does."""

import pytest
import trio

from tests.broker.room import room
from tests.wire import Wire
from trunkline.broker.net.listeners import ListenError
from trunkline.config.listener_settings import ListenerSettings


async def test_a_listener_comes_is_paused_is_drained_and_goes() -> None:
    async with room() as here:
        listeners = here.admin.listeners
        added = await listeners.add(ListenerSettings(url="tcp://127.0.0.1:0", name="more"))
        assert [each.state for each in listeners] == ["listening", "listening"]
        async with await Wire.open(*added.address) as wire:
            await wire.connect("a")
            assert [each.connections for each in listeners] == [0, 1]
            assert listeners.pause("more").state == "paused"
            assert (await listeners.resume("more")).state == "listening"
            assert listeners.drain("more", 0).state == "closed"
            await wire.expect_disconnect(0x98)
        with pytest.raises(ListenError, match="'more' is closed"):
            listeners.pause("more")
        assert (await listeners.resume("more")).state == "listening"
        listeners.remove("more")
        assert [each.name for each in listeners] != ["more"]
        assert len(list(listeners)) == 1
        with pytest.raises(OSError, match="all attempts|refused"):
            await trio.open_tcp_stream(*added.address)


async def test_a_name_that_no_listener_has() -> None:
    async with room(listeners=[{"url": "tcp://127.0.0.1:0", "name": "more"}]) as here:
        listeners = here.admin.listeners
        for use in (listeners.pause, listeners.remove, lambda name: listeners.drain(name, 0)):
            with pytest.raises(LookupError, match="no listener 'moer'.*more"):
                use("moer")
        with pytest.raises(LookupError, match="no listener 'moer'"):
            await listeners.resume("moer")
