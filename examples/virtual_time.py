"""A keep-alive of an hour passes at once: the broker obeys the test's clock.

Run it with `python examples/virtual_time.py`.
"""

import trio
from trio.testing import MockClock

import trunkline.testing
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack, Connect, Disconnect
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        stream, decoder = broker.connect(), Decoder(server=False, version=Version.V5)
        await stream.send_all(encode(Connect("sleepy", keep_alive=3600), Version.V5))
        (connack,) = decoder.feed(bytes(await stream.receive_some()))
        assert isinstance(connack, Connack)
        began = trio.current_time()
        (disconnect,) = decoder.feed(bytes(await stream.receive_some()))
        assert isinstance(disconnect, Disconnect)
        print(f"{Reason(disconnect.reason).name.lower()} after {trio.current_time() - began:.0f} s")
        await stream.aclose()


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))
