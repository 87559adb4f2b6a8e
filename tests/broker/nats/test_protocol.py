"""NATS among what listeners speak."""

import subprocess
import sys

from tests.broker.nats.speaking import nats_room


async def test_all_listeners_are_of_one_server_and_count_together() -> None:
    async with nats_room(listeners=[{"url": "nats://127.0.0.1:0", "name": "other"}]) as here:
        first = await here.speaker()
        other = here.broker.listeners["other"]
        here.broker.listeners["nats"] = other
        second = await here.speaker()
        assert first.info["server_id"] == second.info["server_id"]
        assert second.info["client_id"] == first.info["client_id"] + 1
        assert len(here.connections) == 2


def test_a_broker_without_such_a_listener_imports_none_of_it() -> None:
    code = (
        "import sys, trio\nfrom trunkline import testing\n"
        "async def main():\n async with testing.broker(listeners=['tcp://127.0.0.1:0']): pass\n"
        "trio.run(main)\nprint([name for name in sys.modules if name.startswith('trunkline.broker.nats')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
