"""The same plugin in the other workers of a node: what it says to itself there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class HostWords(Protocol):
    """The links to other workers."""

    own: int
    came: list[Callable[[int], None]]

    @property
    def count(self) -> int: ...
    @property
    def reached(self) -> list[int]: ...
    def home_of(self, text: str) -> int: ...
    def tell_one(self, shard: int, subject: str, content: object) -> None: ...
    def ask(self, shard: int, subject: str, content: object, answered: Callable[[Any], None]) -> None: ...
    def hear(self, subject: str, hearer: Callable[[int, Any], None]) -> None: ...
    def answer(self, subject: str, answerer: Callable[[int, Any, Callable[[Any], None]], None]) -> None: ...


class OtherWorkers:
    """The other workers, by their numbers. A node of one process has none. What is said is plain: numbers, text, bytes,
    lists and dicts. It is lost with a worker that goes."""

    def __init__(
        self, words: HostWords | None, plugin: str, hears: Callable[[], bool], at_end: list[Callable[[], None]]
    ) -> None:
        """Of one run: it `hears` while it works, and what is `at_end` is called when it does no more."""
        self._words = words
        self._subject = f"plugin {plugin}"
        self._hears = hears
        self._at_end = at_end

    @property
    def own(self) -> int:
        """The number of this worker."""
        return 0 if self._words is None else self._words.own

    @property
    def numbers(self) -> list[int]:
        """Of all others, whether they can be reached or not."""
        return [] if self._words is None else [each for each in range(self._words.count) if each != self._words.own]

    @property
    def reached(self) -> list[int]:
        """Of those that can be."""
        return [] if self._words is None else self._words.reached

    def home_of(self, text: str) -> int:
        """The number of the worker, perhaps of this one, that decides about something with this name."""
        return 0 if self._words is None else self._words.home_of(text)

    def tell(self, content: object, worker: int | None = None) -> None:
        """Say it to one, or to all that can be reached."""
        if self._words is not None:
            for each in self._words.reached if worker is None else (worker,):
                self._words.tell_one(each, self._subject, content)

    def hear(self, hearer: Callable[[int, Any], None]) -> None:
        """Call this with the number of a worker and what the plugin says there. It is plain, and must not raise."""
        if self._words is not None:
            self._words.hear(self._subject, self._while_it_hears(hearer))

    def ask(self, worker: int, content: object, answered: Callable[[Any], None]) -> None:
        """Call back with what the plugin answers there; with None, if it cannot answer, or does not run. What comes
        from there later is heard later."""
        if self._words is not None:
            self._words.ask(worker, self._subject, content, answered)

    def answer(self, answerer: Callable[[int, Any, Callable[[Any], None]], None]) -> None:
        """As `hear`, for what is asked. The answer goes to the function that comes last, at once or later."""
        if self._words is None:
            return

        def answer(worker: int, content: Any, reply: Callable[[Any], None]) -> None:
            if self._hears():
                answerer(worker, content, reply)
            else:
                reply(None)

        self._words.answer(self._subject, answer)

    def when_reached(self, callback: Callable[[int], None]) -> None:
        """Call this with the number of each worker that can be reached, now and from now on."""
        if self._words is None:
            return
        came, guarded = self._words.came, self._while_it_hears(callback)
        came.append(guarded)
        self._at_end.append(lambda: came.remove(guarded))
        for worker in self._words.reached:
            callback(worker)

    def _while_it_hears(self, callback: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            if self._hears():
                callback(*arguments)

        return call
