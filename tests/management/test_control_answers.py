"""What the control socket answers, and whom it keeps waiting."""

import json
import os
import shutil
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.management.asking import controlled, through_socket
from tests.management.by_hand import by_hand, request
from tests.management.populating import populate
from trunkline import __version__
from trunkline.broker.node.admin import Admin
from trunkline.management import control_answers
from trunkline.management.control_client import ControlClient, ControlError
from trunkline.management.operations.registry import OPERATIONS, NotFound, Page, operation

unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")


@unix
async def test_errors_of_operations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @operation("test.crash")
    def crash(broker: Admin) -> None:
        """Crash."""
        raise ZeroDivisionError("by nothing")

    def ask(client: ControlClient) -> list[tuple[str, str]]:
        answers: list[tuple[str, str]] = []
        for name, arguments in (
            ("test.crash", {}),
            ("nothing", {}),
            ("clients.show", {}),
            ("clients.show", {"client_id": "x"}),
            ("plugins.disable", {"name": "x"}),
        ):
            try:
                client.call(name, **arguments)
            except ControlError as error:
                answers.append((error.code, str(error)))
        return answers

    try:
        async with controlled(tmp_path):
            answers = await through_socket(tmp_path, ask)
    finally:
        del OPERATIONS["test.crash"]
    assert [code for code, _ in answers] == ["failed", "not_found", "bad_request", "not_found", "refused"]
    assert answers[0][1] == "test.crash crashed: ZeroDivisionError: by nothing"
    assert "Traceback" in caplog.text


@unix
async def test_an_answer_that_is_too_large(tmp_path: Path) -> None:
    async with controlled(tmp_path, max_body_size=65_536) as here:
        here.admin.messages.publish("t", b"x" * 70_000, retain=True)
        with pytest.raises(ControlError, match="control.max_body_size is 65536") as caught:
            await through_socket(tmp_path, lambda client: client.call("retained.show", topic="t"))
        assert caught.value.code == "too_large"


@unix
async def test_a_page_holds_no_more_bytes_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_answers, "PAGE_BYTES", 10_000)
    filters = [f"{number:02}/" + "x" * 3_000 for number in range(20)]
    async with controlled(tmp_path) as here:
        a = await here.client("a")
        for filter in filters:
            await a.subscribe(filter)

        def pages(client: ControlClient, *names: str) -> list[list[list[str]]]:
            return [[[row["filter"] for row in page] for page in client.pages(name)] for name in names]

        found = await through_socket(tmp_path, lambda client: pages(client, "subscriptions.list", "routes.list"))
        for listing in found:
            assert [len(page) for page in listing] == [3, 3, 3, 3, 3, 3, 2]
            assert [filter for page in listing for filter in page] == filters
        monkeypatch.setattr(control_answers, "PAGE_BYTES", 10)
        (single,) = await through_socket(tmp_path, lambda client: pages(client, "routes.list"))
        assert [len(page) for page in single] == [1] * 20


@unix
async def test_thousands_of_rows_come_paged_while_messages_flow(tmp_path: Path) -> None:
    count = 1_000
    async with controlled(tmp_path) as here:
        await populate(here, count)
        sender, taker = await here.client("sender"), await here.client("taker")
        await taker.subscribe(("t", 1))
        delivered = 0
        delivered_at_page: list[int] = []
        listing = True

        async def flow() -> None:
            nonlocal delivered
            while listing:
                await sender.publish("t", b"%d" % delivered, qos=1)
                await taker.take_publish("t", b"%d" % delivered, qos=1)
                delivered += 1

        def rows(client: ControlClient) -> dict[str, list[int]]:
            sizes: dict[str, list[int]] = {}
            seen: dict[str, set[str]] = {}
            for name, key in (("sessions.list", "client_id"), ("subscriptions.list", "filter")):
                for page in client.pages(name):
                    sizes.setdefault(name, []).append(len(page))
                    seen.setdefault(name, set()).update(row[key] for row in page)
                    delivered_at_page.append(delivered)
            assert len(seen["sessions.list"]) == count + 2
            assert len(seen["subscriptions.list"]) == count + 1
            return sizes

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flow)
            sizes = await through_socket(tmp_path, rows)
            listing = False
    assert sizes["sessions.list"] == [500] * 2 + [2]
    assert sizes["subscriptions.list"] == [500] * 2 + [1]
    # others had their turn all the while: messages came through between the first page and the last
    assert delivered_at_page[0] < delivered_at_page[-1]


@unix
async def test_a_client_that_reads_nothing_keeps_a_page_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = 0
    answer = control_answers._result  # pyright: ignore[reportPrivateUsage]

    async def count(*arguments: Any) -> bytes:
        nonlocal answered
        answered += 1
        return await answer(*arguments)

    monkeypatch.setattr(control_answers, "_result", count)
    async with controlled(tmp_path) as here:
        await populate(here, 500)
        async with by_hand(tmp_path) as deaf, trio.open_nursery() as nursery:
            asked = 0

            async def ask() -> None:
                nonlocal asked
                while True:
                    await deaf.send(request("sessions.list"))
                    asked += 1

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.05)
            assert asked > answered  # they wait in the system's buffers, and cost the broker nothing
            before = answered
            a = await here.client("a")
            await a.subscribe("t")
            for _ in range(50):
                await a.publish("t", b"x")
                await a.expect_publish("t", b"x")
            assert answered == before
            assert await through_socket(tmp_path, lambda client: client.call("status"))
            nursery.cancel_scope.cancel()


# As curl sees it


@unix
async def test_which_broker_it_is(tmp_path: Path) -> None:
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await client.receive()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.content == {
            "node": "trunkline",
            "version": __version__,
            "pid": os.getpid(),
            "max_body_size": 16_777_216,
        }


@unix
@pytest.mark.parametrize(
    ("line", "body", "status", "code", "text"),
    [
        ("GET /nothing", "", 404, "not_found", "POST /operations/NAME runs an operation"),
        ("POST /operations", "", 404, "not_found", "there is nothing at /operations"),
        ("POST /operations/clients.lst", "", 404, "not_found", "did you mean clients.list?"),
        ("POST /", "", 405, "bad_request", "/ takes GET, not POST"),
        ("GET /operations/status", "", 405, "bad_request", "takes POST, not GET"),
        ("POST /operations/status", "{", 400, "malformed", "the arguments are not JSON"),
        ("POST /operations/status", "[1]", 400, "malformed", "not a JSON object"),
        ("POST /operations/status", '{"a": 1}', 400, "bad_request", "status takes no argument 'a'"),
        ("POST /operations/clients.show", '{"client_id": "x"}', 404, "not_found", "no client 'x'"),
        ("POST /operations/plugins.disable", '{"name": "x"}', 409, "refused", "x"),
    ],
)
async def test_problems(line: str, body: str, status: int, code: str, text: str, tmp_path: Path) -> None:
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        for _ in range(2):  # the connection goes on
            await client.send(f"{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            answer = await client.receive()
            assert (answer.status, answer.content["status"], answer.content["code"]) == (status, status, code)
            assert answer.headers["content-type"] == "application/problem+json"
            assert text in answer.content["detail"]


@unix
async def test_a_payload_is_text_or_base64(tmp_path: Path) -> None:
    async with controlled(tmp_path) as here, by_hand(tmp_path) as client:
        a = await here.client("a")
        await a.subscribe("t")
        for payload, expected in (
            ({"payload": "gr\u00fcn"}, "gr\u00fcn".encode()),
            ({"payload": "/w==", "payload_encoding": "base64"}, b"\xff"),
        ):
            await client.send(request("publish", {"topic": "t", **payload, "retain": True}))
            assert (await client.receive()).content == {"topic": "t", "receivers": 1}
            await a.expect_publish("t", expected)
        await client.send(request("retained.show", {"topic": "t"}))
        shown = (await client.receive()).content
        assert (shown["payload"], shown["payload_encoding"]) == ("/w==", "base64")


@unix
async def test_all_rows_a_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_answers, "LINES_BYTES", 1_000)
    async with controlled(tmp_path) as here, AsyncExitStack() as stack:
        await populate(here, 501)
        client = await stack.enter_async_context(by_hand(tmp_path))  # not before: it must not be silent for long
        for arguments, expected in (({}, 501), ({"limit": 3}, 3), ({"after": "c00499"}, 1), ({"prefix": "x"}, 0)):
            await client.send(request("sessions.list", arguments, "Accept: application/jsonl"))
            answer = await client.receive()
            assert (answer.status, answer.headers["content-type"]) == (200, "application/jsonl")
            assert answer.headers["transfer-encoding"] == "chunked"
            rows = [json.loads(line) for line in answer.body.splitlines()]
            ids = [f"c{number:05}" for number in range(501)]
            after = ids.index(arguments["after"]) + 1 if "after" in arguments else 0
            assert [row["client_id"] for row in rows] == ids[after : after + expected]
        await client.send(request("status", {}, "Accept: application/jsonl"))
        assert (await client.receive()).headers["content-type"] == "application/json"
        await client.send(request("sessions.list", {"limit": "x"}, "Accept: application/jsonl"))
        assert (await client.receive()).status == 400


@unix
async def test_lines_that_end_too_early_say_why(tmp_path: Path) -> None:
    @operation("test.rows")
    def rows(broker: Admin, after: int = 0) -> Page[dict[str, int]]:
        """Rows of which the second page is gone."""
        if after:
            raise NotFound("it is gone")
        return Page([{"a": 1}], 1)

    try:
        async with controlled(tmp_path), by_hand(tmp_path) as client:
            await client.send(request("test.rows", {}, "Accept: application/jsonl"))
            with pytest.raises(h11.RemoteProtocolError, match="peer closed connection without sending complete"):
                await client.receive()
            lines = client.body.splitlines()
            assert json.loads(lines[0]) == {"a": 1}
            assert json.loads(lines[1])["detail"] == "it is gone"
    finally:
        del OPERATIONS["test.rows"]


@unix
@pytest.mark.skipif(shutil.which("curl") is None, reason="the standard tool of every system: curl")
async def test_with_curl(tmp_path: Path) -> None:
    command = ["curl", "--silent", "--show-error", "--fail-with-body", "--unix-socket", str(tmp_path / "broker.sock")]
    async with controlled(tmp_path) as here:
        await populate(here, 2)
        about = await trio.run_process([*command, "http://localhost/"], capture_stdout=True)
        assert json.loads(about.stdout)["node"] == "trunkline"
        more = ["-H", "Accept: application/jsonl", "-d", '{"prefix": "c"}', "http://localhost/operations/sessions.list"]
        rows = await trio.run_process([*command, *more], capture_stdout=True)
        assert [json.loads(line)["client_id"] for line in rows.stdout.splitlines()] == ["c00000", "c00001"]
        # so much that curl asks before it sends it
        much = tmp_path / "much"
        much.write_text(json.dumps({"topic": "t", "payload": "x" * 2_000_000, "retain": True}))
        sent = await trio.run_process(
            [*command, "-d", f"@{much}", "http://localhost/operations/publish"], capture_stdout=True
        )
        assert json.loads(sent.stdout) == {"topic": "t", "receivers": 0}
        failed = await trio.run_process(
            [*command, "-X", "POST", "http://localhost/operations/nothing"],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert (failed.returncode, json.loads(failed.stdout)["code"]) == (22, "not_found")
