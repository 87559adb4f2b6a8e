"""The states of a connection: the table, and that the documentation shows the same."""

from itertools import product
from pathlib import Path

import pytest
import trio.testing

from tests.broker.room import room
from tests.conformance import raw
from tests.tables import transitions_in
from trunkline.broker.connection.connection import Connection
from trunkline.broker.connection.lifecycle import TRANSITIONS, ConnectionEvent, ConnectionState
from trunkline.broker.transitions import ImpossibleTransition, follow
from trunkline.hooks import ALLOW
from trunkline.hooks.client import ClientInfo

PAGE = Path(__file__).parents[3] / "docs" / "sessions.md"
IMPOSSIBLE = [step for step in product(ConnectionState, ConnectionEvent) if step not in TRANSITIONS]


def test_the_table_is_the_documented_one() -> None:
    table = {(state.value, event.value): after.value for (state, event), after in TRANSITIONS.items()}
    assert transitions_in(PAGE, "Connection") == table


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_an_impossible_event_is_an_error(state: ConnectionState, event: ConnectionEvent) -> None:
    with pytest.raises(ImpossibleTransition, match=f"event '{event}' is not possible in the state '{state}'"):
        follow(TRANSITIONS, state, event)


async def test_the_states_of_a_connection_that_opens_and_closes() -> None:
    async with room() as here:
        answer = trio.Event()

        async def allow(client: ClientInfo, password: bytes | None) -> object:
            await answer.wait()
            return ALLOW

        here.node.hooks.add("client.authenticate", allow)
        client = here.wire()
        (connection,) = here.node.listeners.connections
        assert isinstance(connection, Connection)
        states = [connection.state]
        await client.send(raw.connect("a"))
        await trio.testing.wait_all_tasks_blocked()
        states.append(connection.state)
        answer.set()
        await client.expect_type(raw.CONNACK)
        states.append(connection.state)
        await client.send(raw.disconnect())
        await client.expect_close()
        states.append(connection.state)
        await client.abort()
        await trio.testing.wait_all_tasks_blocked()
        states.append(connection.state)
    assert states == ["awaiting connect", "authenticating", "open", "closing", "closed"]
