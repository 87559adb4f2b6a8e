"""A node of several workers, as a command sees it: all are asked, and their answers are one."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from trunkline.broker.shards.homes import FIRST
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_place import worker_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

_T = TypeVar("_T")

#: Rows of a page.
PAGE: Final = 500


class ControlGroup:
    """It is asked as a `ControlClient` is."""

    def __init__(self, folder: Path, connect: Callable[[Path], ControlClient] = ControlClient) -> None:
        """
        Raises:
            NoBroker: no worker answers.
            ControlError: a worker accepts no connection now.
        """
        self.path = folder
        self._workers: list[ControlClient] = []
        #: Numbers of workers that do not answer: they may be starting.
        self.missing: list[int] = []
        problem: NoBroker | None = None
        with ExitStack() as opened:
            for path in worker_sockets(folder):
                try:
                    self._workers.append(opened.enter_context(connect(path)))
                except NoBroker as error:
                    problem = error
                    self.missing.append(int(path.stem))
            if not self._workers:
                raise problem or NoBroker(f"no broker at {folder}: there is no worker's socket")
            self._opened = opened.pop_all()
        first = self._workers[0]
        self.node, self.version, self.pid = first.node, first.version, first.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def call(self, operation: str, **arguments: object) -> Any:
        """As of a `ControlClient`. What only one worker could do is refused: it can be named.

        Raises:
            ControlError: no worker does it.
            NoBroker: a worker is gone.
        """
        # imported here: a command for a single process does not need it
        from trunkline.management.merging import ANYWHERE, EVERYWHERE, SOMEWHERE, merged_results
        from trunkline.management.operations.registry import is_of_streams

        if is_of_streams(operation):
            return self._first("has the streams").call(operation, **arguments)
        if operation in EVERYWHERE or len(self._workers) == 1:
            return merged_results(operation, list(_but_for("elsewhere", self._each(operation, arguments))))
        if operation == "plugins.call" and self._is_of_node(arguments["name"]):
            return self._first("runs the plugin").call(operation, **arguments)
        if operation in ANYWHERE:
            return self._workers[0].call(operation, **arguments)
        if operation not in SOMEWHERE:
            path = self._workers[0].path
            raise ControlError("refused", f"{operation}: the node has several workers; name one with --socket {path}")
        return next(_but_for("not_found", self._each(operation, arguments)))

    def _each(self, operation: str, arguments: Mapping[str, object]) -> Iterator[Callable[[], Any]]:
        return (partial(worker.call, operation, **arguments) for worker in self._workers)

    def _is_of_node(self, plugin: object) -> bool:
        """Whether the first worker runs it for all."""
        return any(row["scope"] == "node" for row in self.rows("plugins.list") if row["name"] == plugin)

    def _first(self, does: str) -> ControlClient:
        """The worker that has what there is once for all.

        Raises:
            NoBroker: it does not answer.
        """
        if FIRST in self.missing:
            raise NoBroker(f"worker {FIRST}, which {does}, does not answer: is it starting?")
        return self._workers[FIRST]

    def pages(self, operation: str, **arguments: Any) -> Iterator[list[dict[str, Any]]]:
        """As of a `ControlClient`, in the order of the listing.

        Raises:
            ControlError: a worker says no.
            NoBroker: a worker is gone.
        """
        page: list[dict[str, Any]] = []
        for row in self.rows(operation, **arguments):
            page.append(row)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    def rows(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        from trunkline.management.merging import KNOWN, NAMED, WHOLE, merged_rows
        from trunkline.management.operations.registry import is_of_streams

        if is_of_streams(operation):
            return self._first("has the streams").rows(operation, **arguments)
        if operation in WHOLE:
            return self._workers[0].rows(operation, **arguments)
        skipped = 0
        if isinstance(arguments.get("after"), int):
            skipped = arguments.pop("after")
        parts: list[Iterator[dict[str, Any]]] = [worker.rows(operation, **arguments) for worker in self._workers]
        if operation in NAMED:
            parts = [_named(rows, int(worker.path.stem)) for rows, worker in zip(parts, self._workers, strict=True)]
        if operation in KNOWN:  # a worker may know nothing of what is asked about
            parts = list(_but_for("not_found", (partial(_begun, rows) for rows in parts)))
        return merged_rows(operation, parts, skipped)


def _named(rows: Iterator[dict[str, Any]], worker: int) -> Iterator[dict[str, Any]]:
    return ({"worker": worker, **row} for row in rows)


def _begun(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Asked for the first of them."""
    return chain([*islice(rows, 1)], rows)


def _but_for(code: str, calls: Iterable[Callable[[], _T]]) -> Iterator[_T]:
    """What the calls give, without those that are refused with this code.

    Raises:
        ControlError: all are, or one is refused with another code.
    """
    refusal: ControlError | None = None
    is_given = False
    for call in calls:
        try:
            given = call()
        except ControlError as error:
            if error.code != code:
                raise
            refusal = refusal or error
            continue
        is_given = True
        yield given
    if refusal is not None and not is_given:
        raise refusal
