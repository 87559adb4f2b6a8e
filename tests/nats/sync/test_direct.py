import pytest

from tests.nats.servers import NatsServer
from trunkline.nats import sync
from trunkline.nats.client.jetstream import NotSupported
from trunkline.nats.jetstream.configs import StreamConfig

#: Seconds for what should come.
SOON = 60.0
LAMPS = StreamConfig(name="lamps", subjects=("lamps.>",), allow_direct=True)


def test_several_messages_at_once(server: NatsServer) -> None:
    with sync.connect(server.url) as client:
        js = client.jetstream(timeout=SOON)
        js.create_stream(LAMPS)
        for number in range(4):
            js.publish(f"lamps.{number % 2}", b"%d" % number)
        direct = js.direct("lamps")
        if client.server["version"].startswith("2.9"):
            with pytest.raises(NotSupported):
                direct.batch(2)
        else:
            assert [each.payload for each in direct.batch(3, sequence=2, timeout=SOON).messages] == [b"1", b"2", b"3"]
            assert [each.sequence for each in direct.lasts("lamps.*", up_to=3, timeout=SOON).messages] == [2, 3]
        js.delete_stream("lamps")
