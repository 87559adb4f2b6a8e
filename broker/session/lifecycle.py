"""The states of a session, and the events that lead from one to the next. The table is the one of
`docs/sessions.md`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from trunkline.broker.transitions import follow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.broker.session.channel import Channel


class SessionState(StrEnum):
    #: Made for a connection whose request is in the mailbox, or to be filled with what was stored.
    NEW = "new"
    #: Its client is connected, and what the client sends is handled at once.
    CONNECTED = "connected"
    #: Its client is connected, and an answer is due before the client's next packet is handled.
    WAITING = "waiting"
    #: No client is connected. The will waits for its delay, the session for its expiry.
    AWAY = "away"
    #: Its client id is free. What is left of it goes to others or is dropped.
    ENDED = "ended"


class SessionEvent(StrEnum):
    #: A connection gets the session.
    ATTACH = "attach"
    #: The connection is over: closed by either side, lost, or replaced by another.
    DETACH = "detach"
    #: The routes, a hook or an access service are asked.
    ASK = "ask"
    ANSWER = "answer"
    #: The session was stored by a node that is gone.
    RESTORE = "restore"
    #: It expired, was discarded or was ended by the broker.
    END = "end"


TRANSITIONS: Final[Mapping[tuple[SessionState, SessionEvent], SessionState]] = {
    (SessionState.NEW, SessionEvent.ATTACH): SessionState.CONNECTED,
    (SessionState.NEW, SessionEvent.RESTORE): SessionState.AWAY,
    (SessionState.NEW, SessionEvent.END): SessionState.ENDED,
    (SessionState.CONNECTED, SessionEvent.ASK): SessionState.WAITING,
    (SessionState.CONNECTED, SessionEvent.DETACH): SessionState.AWAY,
    (SessionState.WAITING, SessionEvent.ANSWER): SessionState.CONNECTED,
    (SessionState.WAITING, SessionEvent.DETACH): SessionState.AWAY,
    (SessionState.AWAY, SessionEvent.ATTACH): SessionState.CONNECTED,
    (SessionState.AWAY, SessionEvent.END): SessionState.ENDED,
}


class Life:
    """Of one session."""

    __slots__ = ("reading", "state")

    def __init__(self) -> None:
        self.state = SessionState.NEW
        #: The connection whose packets are handled at once: there is one in the state `CONNECTED` only.
        self.reading: Channel | None = None

    def follow(self, event: SessionEvent, channel: Channel | None = None) -> None:
        """`channel` is the connection that the session has afterwards.

        Raises:
            ImpossibleTransition: an error in the broker.
        """
        self.state = follow(TRANSITIONS, self.state, event)
        self.reading = channel if self.state is SessionState.CONNECTED else None

    @property
    def ended(self) -> bool:
        return self.state is SessionState.ENDED
