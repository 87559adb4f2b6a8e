"""HTTP on the control socket, spoken by hand: what cannot be read ends its connection, and no other."""

import contextlib
import socket
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.management.asking import controlled, through_socket
from tests.management.by_hand import Raw, by_hand, request
from tests.management.populating import populate
from trunkline.management import control_http
from trunkline.management.control_place import read_port

unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")
HEAD = "POST /operations/status HTTP/1.1\r\nHost: localhost\r\n"


@unix
@pytest.mark.parametrize(
    ("garbage", "status", "text"),
    [
        (b"\x10\x10\0\x04MQTT\x04\2\0<\0\4abcd\r\n\r\n", 400, "not HTTP: illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "not HTTP: Missing mandatory Host: header"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000, 431, "not HTTP: Receive buffer too long"),
        (f"{HEAD}Content-Length: many\r\n\r\n".encode(), 400, "not HTTP: bad Content-Length"),
        (f"{HEAD}Content-Length: 65537\r\n\r\n".encode() + b"x" * 65_537, 413, "more than 65536 bytes"),
        (f"{HEAD}Transfer-Encoding: chunked\r\n\r\nx".encode() * 2, 400, "not HTTP: illegal chunk header"),
    ],
)
async def test_what_is_no_request(
    garbage: bytes, status: int, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled(tmp_path, max_body_size=65_536), by_hand(tmp_path) as client:
        await client.send(request("log.level"))
        assert (await client.receive()).status == 200
        await client.send(garbage)
        answer = await client.receive()
        assert (answer.status, answer.content["status"], answer.headers["connection"]) == (status, status, "close")
        assert answer.headers["content-type"] == "application/problem+json"
        assert text in answer.content["detail"]
        await client.stream.send_eof()
        await client.expect_close()
        assert [text in record.message for record in caplog.records if record.name == "trunkline.control"] == [True]
        assert await through_socket(tmp_path, lambda other: other.call("status"))


@unix
@pytest.mark.parametrize("part", [b"POST /oper", f"{HEAD}Content-Length: 9\r\n\r\n{{}}".encode()])
async def test_a_request_that_ends_in_the_middle(part: bytes, tmp_path: Path) -> None:
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        await client.send(part)
        await client.stream.send_eof()
        assert (await client.receive()).status == 400
        await client.expect_close()


@unix
async def test_whatever_comes_the_broker_goes_on(tmp_path: Path) -> None:
    random = Random(7)
    whole = request("clients.list", {"limit": 3, "prefix": "a"})
    async with controlled(tmp_path) as here:
        for number in range(300):
            async with by_hand(tmp_path) as client:
                damaged = bytearray(whole)
                for _ in range(random.randint(1, 8)):
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
                garbage = random.randbytes(random.randrange(40)) if number % 3 == 0 else bytes(damaged)
                with contextlib.suppress(trio.BrokenResourceError):
                    await client.send(garbage)
                    await client.stream.send_eof()
                    while await client.stream.receive_some():
                        pass
        assert await through_socket(tmp_path, lambda client: client.call("status"))
        assert here.admin.control is not None


@unix
async def test_requests_that_come_together_are_answered_one_by_one(tmp_path: Path) -> None:
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        await client.send(request("log.level"), request("nothing"), request("log.level", None, "Connection: close"))
        assert [(await client.receive()).status for _ in range(3)] == [200, 404, 200]
        await client.expect_close()


@unix
async def test_a_body_that_is_sent_when_it_is_asked_for(tmp_path: Path) -> None:
    """As curl does with a large one."""
    whole = request("clients.list", {"prefix": "a"}, "Expect: 100-continue")
    head, body = whole.split(b"\r\n\r\n")
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        await client.send(head + b"\r\n\r\n")
        assert b"100" in await client.stream.receive_some()
        await client.send(body)
        assert (await client.receive()).content == {"rows": [], "next": None}


@unix
async def test_who_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_http, "GREETING_TIME", 0.05)
    async with controlled(tmp_path, idle_timeout=0.1):
        async with by_hand(tmp_path) as silent:
            await silent.expect_close()
        async with by_hand(tmp_path) as idle:
            await idle.send(request("log.level"))
            assert (await idle.receive()).status == 200
            await idle.expect_close()
        async with by_hand(tmp_path) as slow:
            await slow.send(f"{HEAD}Content-Length: 9\r\n\r\n".encode())
            answer = await slow.receive()
            assert (answer.status, answer.content["code"]) == (408, "malformed")
            assert "has not come for 0.1 s" in answer.content["detail"]


@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer wrong", None, "Basic abc", "Bearer \xfc"])
async def test_a_port_is_for_those_who_know_the_token(token: str | None, tmp_path: Path) -> None:
    async with controlled(tmp_path, transport="tcp"):
        port = read_port(tmp_path / "broker.sock")
        async with await trio.open_tcp_stream("127.0.0.1", port.port) as stream:
            stranger = Raw(stream)
            header = "" if token is None else f"Authorization: {token}\r\n"
            # the body is not read
            await stranger.send(f"{HEAD}{header}Content-Length: 99999\r\n\r\n".encode("latin-1"))
            answer = await stranger.receive()
            assert (answer.status, answer.content["code"]) == (401, "unwelcome")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert port.token not in str(answer)
            await stream.send_eof()
            await stranger.expect_close()
        async with await trio.open_tcp_stream("127.0.0.1", port.port) as stream:
            friend = Raw(stream)
            await friend.send(request("log.level", None, f"Authorization: Bearer {port.token}"))
            assert (await friend.receive()).status == 200


@unix
async def test_a_client_that_reads_nothing_for_too_long_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    async with controlled(tmp_path, idle_timeout=20) as here:
        await populate(here, 500)
        async with by_hand(tmp_path) as deaf, trio.open_nursery() as nursery:

            async def ask() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    while True:
                        await deaf.send(request("sessions.list"))

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(21)
            assert here.admin.control is not None
            while here.admin.control.connections:
                await trio.lowlevel.checkpoint()
    assert "it read nothing for 20 s" in caplog.text
