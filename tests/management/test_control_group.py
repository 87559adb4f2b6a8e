"""Several workers that are asked as one broker. They are functions here."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, cast

import pytest

from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_group import PAGE, ControlGroup

Answer = Callable[..., Any]


class Worker:
    node, version = "n", "1"

    def __init__(self, path: Path, answer: Answer) -> None:
        self.path = path
        self.pid = 100 + int(path.stem)
        self._answer = answer
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def call(self, operation: str, **arguments: object) -> Any:
        return self._answer(self.pid, operation, **arguments)

    def rows(self, operation: str, **arguments: object) -> Iterator[Any]:
        yield from self._answer(self.pid, operation, **arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"{number}.sock").touch()
    return tmp_path


def group(folder: Path, answer: Answer, dead: tuple[int, ...] = ()) -> ControlGroup:
    def connect(path: Path) -> ControlClient:
        if int(path.stem) in dead:
            raise NoBroker(f"no broker at {path}")
        return cast("ControlClient", Worker(path, answer))

    return ControlGroup(folder, connect)


@pytest.mark.parametrize(("scope", "asked"), [("node", [100]), ("worker", [])])
def test_a_command_of_a_plugin_that_runs_once_is_for_its_worker(folder: Path, scope: str, asked: list[int]) -> None:
    called: list[int] = []

    def answer(pid: int, operation: str, **arguments: object) -> Any:
        if operation == "plugins.list":
            return [{"name": "other", "scope": "worker"}, {"name": "bell", "scope": scope}]
        return called.append(pid)

    with group(folder, answer) as node:
        if not asked:
            with pytest.raises(ControlError, match="the node has several workers"):
                node.call("plugins.call", name="bell", command="ring")
        else:
            node.call("plugins.call", name="bell", command="ring")
    assert called == asked


def test_all_are_asked_and_closed(folder: Path) -> None:
    asked = []
    with group(folder, lambda pid, *_, **__: asked.append(pid)) as node:
        assert (node.node, node.version, node.pid, node.missing) == ("n", "1", 100, [])
        node.call("log.level", level="debug")
        workers = cast("list[Worker]", node._workers)  # pyright: ignore[reportPrivateUsage]
    assert asked == [100, 101, 102]
    assert all(worker.closed for worker in workers)


def test_what_a_worker_does_not_have_is_no_error_where_another_has_it(folder: Path) -> None:
    codes = ["", "elsewhere", "elsewhere"]

    def answer(pid: int, operation: str, name: str) -> object:
        if code := codes[pid - 100]:
            raise ControlError(code, f"at worker 0, says {pid}")
        return {"name": name, "state": "paused"}

    with group(folder, answer) as workers:
        assert workers.call("listeners.pause", name="n") == {"name": "n", "state": "paused"}
        codes[1] = "not_found"
        with pytest.raises(ControlError, match="says 101"):
            workers.call("listeners.pause", name="n")
    codes[1] = "elsewhere"
    with group(folder, answer, dead=(0,)) as workers, pytest.raises(ControlError, match="at worker 0"):
        workers.call("listeners.pause", name="n")


def test_one_that_does_not_answer_is_missing(folder: Path) -> None:
    with group(folder, lambda pid, *_, **__: pid, dead=(1,)) as node:
        assert node.missing == [1]
        assert node.call("log.level") == 100
    with pytest.raises(NoBroker, match=r"2\.sock"):
        group(folder, lambda *_: None, dead=(0, 1, 2))


def test_a_folder_without_workers_is_no_broker(tmp_path: Path) -> None:
    with pytest.raises(NoBroker, match="no worker's socket"):
        group(tmp_path, lambda *_: None)


def test_whoever_knows_a_client_answers(folder: Path) -> None:
    def answer(pid: int, operation: str, client_id: str) -> object:
        if pid == 101:
            return {"kicked": client_id}
        raise ControlError("not_found", f"nobody in {pid}")

    with group(folder, answer) as node:
        assert node.call("clients.kick", client_id="a") == {"kicked": "a"}


def test_a_client_that_nobody_knows(folder: Path) -> None:
    def answer(pid: int, operation: str, client_id: str) -> object:
        raise ControlError("not_found", f"nobody in {pid}")

    with group(folder, answer) as node, pytest.raises(ControlError, match="nobody in 100"):
        node.call("clients.kick", client_id="a")


def test_outcomes_are_those_of_workers_that_had_the_message(folder: Path) -> None:
    def answer(pid: int, operation: str, guid: str) -> list[dict[str, object]]:
        if guid == "0" or pid == 101:
            raise ControlError("not_found", f"no message in {pid}")
        if guid == "1":
            raise ControlError("failed", "no")
        return [{"client_id": f"{name}-{pid}"} for name in "ab"]

    with group(folder, answer) as node:
        rows = [row["client_id"] for row in node.rows("trace.outcomes", guid="2")]
        assert rows == ["a-100", "a-102", "b-100", "b-102"]
        with pytest.raises(ControlError, match="no message in 100"):
            list(node.rows("trace.outcomes", guid="0"))
        with pytest.raises(ControlError, match="^no$"):
            list(node.rows("trace.outcomes", guid="1"))


def test_another_error_is_the_answer(folder: Path) -> None:
    def answer(pid: int, operation: str, client_id: str) -> object:
        raise ControlError("refused", "no")

    with group(folder, answer) as node, pytest.raises(ControlError, match="no"):
        node.call("clients.kick", client_id="a")


@pytest.mark.parametrize("operation", ["publish", "retained.set", "retained.delete"])
def test_a_message_goes_to_all_from_any(folder: Path, operation: str) -> None:
    with group(folder, lambda pid, *_, **__: pid, dead=(0,)) as node:
        assert node.call(operation, topic="a") == 101


def test_what_one_worker_would_have_to_do_is_refused(folder: Path) -> None:
    words = r"log.tail: the node has several workers; name one with --socket .*0\.sock"
    with group(folder, lambda *_, **__: None) as node, pytest.raises(ControlError, match=words):
        node.call("log.tail", name="a")


def test_streams_are_at_the_first_worker(folder: Path) -> None:
    def answer(pid: int, operation: str, **arguments: object) -> object:
        return [{"name": f"{operation} {pid}"}] if operation.endswith("list") else pid

    with group(folder, answer) as node:
        assert node.call("streams.create", name="a") == 100
        assert node.call("streams.consumers.info", stream="a", consumer="b") == 100
        assert list(node.rows("streams.list")) == [{"name": "streams.list 100"}]
        assert list(node.pages("streams.consumers.list", stream="a")) == [[{"name": "streams.consumers.list 100"}]]
    words = "worker 0, which has the streams, does not answer"
    with group(folder, answer, dead=(0,)) as node:
        with pytest.raises(NoBroker, match=words):
            node.call("streams.info", name="a")
        with pytest.raises(NoBroker, match=words):
            list(node.rows("streams.list"))


def test_rows_of_all_come_in_pages(folder: Path) -> None:
    def answer(pid: int, operation: str, **arguments: object) -> list[dict[str, object]]:
        return [{"client_id": f"{number:04}-{pid}"} for number in range(PAGE)]

    with group(folder, answer) as node:
        pages = list(node.pages("clients.list"))
        assert list(map(len, pages)) == [PAGE] * 3
        found = [row["client_id"] for page in pages for row in page]
        assert found == sorted(found)


def test_any_worker_has_the_metrics_of_the_node(folder: Path) -> None:
    asked: list[int] = []

    def answer(pid: int, operation: str, **arguments: object) -> list[dict[str, object]]:
        asked.append(pid)
        return [{"name": "a", "value": pid, **arguments}]

    with group(folder, answer) as node:
        assert list(node.rows("metrics", after=2)) == [{"name": "a", "value": asked[0], "after": 2}]
    assert len(asked) == 1


def test_an_actor_is_one_of_a_worker(folder: Path) -> None:
    with group(folder, lambda *_, **__: [{"name": "supervisor"}], dead=(1,)) as node:
        rows = list(node.rows("actors"))
    assert rows == [{"worker": number, "name": "supervisor"} for number in (0, 2)]


def test_rows_that_are_counted_are_counted_in_all(folder: Path) -> None:
    def answer(pid: int, operation: str, **arguments: object) -> list[dict[str, object]]:
        assert "after" not in arguments
        return [{"name": name, "connections": pid} for name in "abc"]

    with group(folder, answer) as node:
        assert list(node.rows("listeners.list", after=2)) == [{"name": "c", "connections": 303}]


def test_a_plugin_of_the_node_is_called_where_it_runs_or_not_at_all(folder: Path) -> None:
    def answer(pid: int, operation: str, **arguments: object) -> object:
        return [{"name": "bell", "scope": "node"}] if operation == "plugins.list" else pid

    with group(folder, answer) as node:
        assert node.call("plugins.call", name="bell", command="ring") == 100
    words = "worker 0, which runs the plugin, does not answer"
    with group(folder, answer, dead=(0,)) as node, pytest.raises(NoBroker, match=words):
        node.call("plugins.call", name="bell", command="ring")
