"""Messages that a stream of another process may refuse: whoever published them knows it when that has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.session.ledger import all_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.ledger import Wait

#: Refusals that are remembered: some are of publishers that do not wait, or have gone.
MAX_REMEMBERED: Final = 10_000


class LateRefusals:
    def __init__(self) -> None:
        #: The last one that was published of which something may be refused.
        self.publication: Publication | None = None
        self._waits: Sequence[Wait] = ()
        #: By the ids of messages.
        self._reasons: dict[int, str] = {}

    def sent(self, publication: Publication, waits: Sequence[Wait]) -> None:
        """It is on its way to where it may be refused; `waits` call back when that is known."""
        self.publication, self._waits = publication, tuple(dict.fromkeys(waits))

    def wait(self) -> Wait | None:
        """For the last one; None, if it was not sent."""
        return all_of(self._waits) if self._waits else None

    def asked(self, publication: Publication, refusals: list[str]) -> Wait | None:
        """For one that goes there later. Its wait asks, once, and calls back when `refusals` has for each message why
        it would be refused now, or nothing. None, if no stream elsewhere takes it."""
        raise NotImplementedError

    def refused(self, guid: int, reason: str) -> None:
        self._reasons[guid] = reason
        if len(self._reasons) > MAX_REMEMBERED:
            del self._reasons[next(iter(self._reasons))]

    def take(self, message: Message) -> str:
        """Why it was refused; empty, if it was not. That is forgotten then."""
        return self._reasons.pop(message.guid, "")
