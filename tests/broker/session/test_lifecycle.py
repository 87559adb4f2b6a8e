"""The states of a session: the table, and that the documentation shows the same."""

from itertools import product
from pathlib import Path

import pytest
import trio.testing

from tests.broker.room import room
from tests.conformance import raw
from tests.tables import transitions_in
from trunkline.broker.session.lifecycle import TRANSITIONS, SessionEvent, SessionState
from trunkline.broker.transitions import ImpossibleTransition, follow

PAGE = Path(__file__).parents[3] / "docs" / "sessions.md"
IMPOSSIBLE = [step for step in product(SessionState, SessionEvent) if step not in TRANSITIONS]


def test_the_table_is_the_documented_one() -> None:
    assert transitions_in(PAGE, "Session") == {
        (state.value, event.value): after.value for (state, event), after in TRANSITIONS.items()
    }


def test_every_state_is_reached_and_all_but_the_last_are_left() -> None:
    assert {*TRANSITIONS.values(), SessionState.NEW} == set(SessionState)
    assert {state for state, _ in TRANSITIONS} == set(SessionState) - {SessionState.ENDED}


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_an_impossible_event_is_an_error(state: SessionState, event: SessionEvent) -> None:
    with pytest.raises(ImpossibleTransition, match=f"event '{event}' is not possible in the state '{state}'"):
        follow(TRANSITIONS, state, event)


async def test_the_states_of_a_session_that_comes_goes_and_ends() -> None:
    async with room() as here:
        client = await here.stay("a")
        context = here.session("a")._context  # pyright: ignore[reportPrivateUsage]
        assert context.state is SessionState.CONNECTED
        assert context.reading is here.session("a").channel is not None
        await client.abort()
        await trio.testing.wait_all_tasks_blocked()
        assert (context.state, context.reading) == (SessionState.AWAY, None)
        again = await here.stay("a")
        assert context.state is SessionState.CONNECTED
        await again.send(raw.disconnect(0, raw.session_expiry(0)))
        await again.expect_close()
        assert context.state is SessionState.ENDED
