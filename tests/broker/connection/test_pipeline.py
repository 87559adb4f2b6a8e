from trunkline import testing
from trunkline.broker.connection.pipeline import layers_of
from trunkline.config.listener_settings import ListenerSettings


async def test_plain_tcp_has_no_layers() -> None:
    async with testing.broker() as b:
        assert layers_of(ListenerSettings(), b.node.services) == []
