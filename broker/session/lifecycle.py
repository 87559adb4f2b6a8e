"""The states of a session, and the events that lead from one to the next. The table is the one of
`docs/sessions.md`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class SessionState(StrEnum):
    #: Made for a connection whose request is in the mailbox, or to be restored from a store.
    NEW = "new"
    #: Its client is connected, and the client's packets are handled at once.
    CONNECTED = "connected"
    #: Its client is connected, and an answer is awaited before the client's next packet is handled.
    WAITING = "waiting"
    #: No client is connected. The will waits for its delay, the session for its expiry.
    AWAY = "away"
    #: Its client id is free. Its remaining messages go to other members of shared groups or are dropped.
    ENDED = "ended"


class SessionEvent(StrEnum):
    #: A connection gets the session.
    ATTACH = "attach"
    #: The connection has ended: closed by either side, lost, or replaced by another.
    DETACH = "detach"
    #: The routes, a hook or an access service are asked, or the store is waited for.
    ASK = "ask"
    ANSWER = "answer"
    #: The session was stored by a node that has ended.
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
