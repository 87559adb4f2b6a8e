"""A state machine: states, events, and a table of transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum

S = TypeVar("S", bound="StrEnum")
E = TypeVar("E", bound="StrEnum")


class ImpossibleTransition(RuntimeError):
    """The table has no transition for this event in this state: an error in the broker."""


def follow(transitions: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """
    Raises:
        ImpossibleTransition: the table has no entry for the event.
    """
    try:
        return transitions[state, event]
    except KeyError:
        raise ImpossibleTransition(f"event {event.value!r} is not possible in the state {state.value!r}") from None
