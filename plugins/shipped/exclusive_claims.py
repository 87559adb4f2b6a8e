"""FilterClaims of exclusive filters in a node of several workers.

Each worker knows what its own clients have, and nobody keeps a list of all. The home of a filter has one claim of it
decided at a time, by asking all workers; while one of them does not answer, nobody new gets the filter. What a worker
was granted it notes before it answers what is asked next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.hooks.decisions import Deny
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.plugins.workers import OtherWorkers

TAKEN: Final = Deny(Reason.QUOTA_EXCEEDED, "another client has this exclusive subscription")
UNKNOWN: Final = Deny(Reason.QUOTA_EXCEEDED, "a worker that may have this exclusive subscription does not answer")


class FilterClaims:
    def __init__(
        self, workers: OtherWorkers, is_held: Callable[[str], bool], note: Callable[[str, str], Deny | None]
    ) -> None:
        """`is_held` says whether a client here has a filter; `note` has a client have it, or says why not."""
        self._workers = workers
        self._is_held = is_held
        self._note = note
        #: Here as the home: whose claim is being decided, and who waits for it.
        self._open: dict[str, tuple[str, list[Callable[[Any], None]]]] = {}
        workers.answer(self._answer)

    async def claim(self, filter: str, client_id: str) -> Deny | None:
        """For a client here. Nobody here has it."""
        outcome: list[Deny | None] = []
        done = trio.Event()

        def decided(held: bool | None) -> None:
            outcome.append(self._note(filter, client_id) if held is False else TAKEN if held else UNKNOWN)
            done.set()

        home, own = self._workers.home_of(filter), self._workers.own
        if home == own:
            self._decide(filter, client_id, own, decided)
        else:
            self._workers.ask(home, (filter, client_id), decided)
        await done.wait()
        return outcome[0]

    def _answer(self, worker: int, content: tuple[str, str | None], reply: Callable[[Any], None]) -> None:
        filter, client_id = content
        if client_id is None:
            reply(self._is_held(filter))
        else:
            self._decide(filter, client_id, worker, reply)

    def _decide(self, filter: str, client_id: str, worker: int, reply: Callable[[Any], None]) -> None:
        """Reply whether it is held by a client of another worker than this one; None: nobody knows."""
        whose, waiting = self._open.get(filter, (client_id, []))
        if whose != client_id:
            reply(True)
            return
        waiting.append(reply)
        if filter in self._open:
            return
        self._open[filter] = client_id, waiting
        answers: list[bool | None] = []
        others = [each for each in self._workers.numbers if each != worker]

        def answered(held: bool | None) -> None:
            answers.append(held)
            if len(answers) == len(others) + 1:
                del self._open[filter]
                held = True if True in answers else None if None in answers else False
                for each in waiting:
                    each(held)

        for each in others:
            self._workers.ask(each, (filter, None), answered)
        answered(worker != self._workers.own and self._is_held(filter))
