"""How a session gets what streams have for it, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.state import Session
    from trunkline.hooks.decisions import Deny
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target

#: Subscriptions that begin, or end, in one turn.
FEEDS_AT_ONCE: Final = 25

T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)


def in_turns(items: Iterable[T], act: Callable[[T], object]) -> Iterator[None]:
    """Do it with each, with some in a turn. They may change meanwhile."""
    for number, item in enumerate(list(items), 1):
        act(item)
        if not number % FEEDS_AT_ONCE:
            yield


class Feeds(Protocol):
    """The subscriptions of one session to streams: one of the sources of what is sent to its client."""

    def begin_each(
        self, grants: Iterable[Grant], properties: Properties, begun: Callable[[], object]
    ) -> Iterator[None]:
        """Subscriptions were made with these properties. In the end `begun` is called, unless the session is over."""
        ...

    def wake(self, filter: str) -> None:
        """There may be something for this subscription."""
        ...

    def end(self, filters: Iterable[str]) -> None:
        """These subscriptions have ended."""
        ...

    def forget(self) -> Iterator[None]:
        """The session has ended: its places in streams go with it."""
        ...

    def attach(self) -> None:
        """The client is there."""
        ...

    def detach(self) -> None:
        """The client has gone."""
        ...

    @property
    def waits(self) -> bool: ...

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]] | None: ...


class FeedHost(Protocol[C_contra]):
    """Where the streams of the node are, for sessions with a context of this type."""

    @property
    def is_away(self) -> bool:
        """Whether it takes time to ask there."""
        ...

    async def refusals(self, session: Session, filters: Sequence[str], properties: Properties) -> Sequence[Deny | None]:
        """Of each of these subscriptions, why a client cannot have it."""
        ...

    def open(self, context: C_contra, waiter: Callable[[], None]) -> Feeds:
        """Those of one session. The `waiter` is called in a turn of the session, when there may be something."""
        ...
