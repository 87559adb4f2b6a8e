"""What one node leaves to the next; `tests/testing/test_restarting.py` shows it from a test's side."""

import pytest

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping

EMPTY = from_mapping({"listeners": [], "sys": {"interval": 0}})


@pytest.mark.parametrize(("sessions", "retained"), [(True, True), (True, False), (False, True), (False, False)])
async def test_sessions_and_retained_messages_go_over_to_another_node(sessions: bool, retained: bool) -> None:
    async with room() as here:
        client = await here.stay("a")
        await client.subscribe(("u", 1))
        await client.publish("t", b"x", qos=1, retain=True)
        kept = here.admin.kept(sessions=sessions, retained=retained)
    async with open_node(EMPTY, adopt=kept) as other:
        assert ("a" in other.clients) is sessions
        assert [row.filter for row in other.routes.subscriptions()] == ["u"] * sessions
        assert [row.topic for row in other.retained.all()] == ["t"] * retained


async def test_a_node_with_a_store_leaves_nothing_beside_it() -> None:
    async with Disk().broker() as life:
        client, _ = await life.stay("a")
        await client.publish("t", b"x", qos=1, retain=True, properties=raw.message_expiry(100))
        kept = life.admin.kept(sessions=True, retained=True)
    async with open_node(EMPTY, adopt=kept) as other:
        assert "a" not in other.clients
        assert other.retained.all() == []
