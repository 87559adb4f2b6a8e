"""A node of several workers, as a command sees it: all are asked, and their answers are one."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.broker.shards.homes import FIRST
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_place import worker_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

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
            return merged_results(operation, self._of_all(operation, arguments))
        if operation == "plugins.call" and self._is_of_node(arguments["name"]):
            return self._first("runs the plugin").call(operation, **arguments)
        if operation in ANYWHERE:
            return self._workers[0].call(operation, **arguments)
        if operation not in SOMEWHERE:
            path = self._workers[0].path
            raise ControlError("refused", f"{operation}: the node has several workers; name one with --socket {path}")
        unknown: ControlError | None = None
        for worker in self._workers:
            try:
                return worker.call(operation, **arguments)
            except ControlError as error:
                if error.code != "not_found":
                    raise
                unknown = unknown or error
        assert unknown is not None
        raise unknown

    def _of_all(self, operation: str, arguments: Mapping[str, object]) -> list[Any]:
        """What those answer that have what it is about.

        Raises:
            ControlError: one says no, or none has it.
        """
        results: list[Any] = []
        elsewhere: ControlError | None = None
        for worker in self._workers:
            try:
                results.append(worker.call(operation, **arguments))
            except ControlError as error:
                if error.code != "elsewhere":
                    raise
                elsewhere = error
        if not results and elsewhere is not None:
            raise elsewhere
        return results

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
        return merged_rows(operation, _knowing(parts) if operation in KNOWN else parts, skipped)


def _named(rows: Iterator[dict[str, Any]], worker: int) -> Iterator[dict[str, Any]]:
    return ({"worker": worker, **row} for row in rows)


def _knowing(parts: Iterable[Iterator[dict[str, Any]]]) -> list[Iterable[dict[str, Any]]]:
    """Those that know what is asked about, of which a worker may have nothing.

    Raises:
        ControlError: none does.
    """
    knowing: list[Iterable[dict[str, Any]]] = []
    unknown: ControlError | None = None
    for rows in parts:
        try:
            knowing.append(chain([*islice(rows, 1)], rows))
        except ControlError as error:
            if error.code != "not_found":
                raise
            unknown = error
    if unknown is not None and not knowing:
        raise unknown
    return knowing
