from enum import StrEnum

import pytest

from trunkline.broker.transitions import ImpossibleTransition, follow


class Door(StrEnum):
    OPEN = "open"
    SHUT = "shut"


class Push(StrEnum):
    IN = "in"
    OUT = "out"


TABLE = {(Door.SHUT, Push.IN): Door.OPEN, (Door.OPEN, Push.OUT): Door.SHUT}


def test_an_event_leads_to_the_state_of_the_table() -> None:
    assert follow(TABLE, Door.SHUT, Push.IN) is Door.OPEN
    assert follow(TABLE, Door.OPEN, Push.OUT) is Door.SHUT


def test_what_is_not_in_the_table_is_an_error_that_names_both() -> None:
    with pytest.raises(ImpossibleTransition, match="^event 'in' is not possible in the state 'open'$") as caught:
        follow(TABLE, Door.OPEN, Push.IN)
    assert caught.value.__suppress_context__
