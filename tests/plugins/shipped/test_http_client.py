"""HTTP as plugins do it, against a server that does what servers do."""

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import SecretStr, ValidationError
from trio.testing import MockClock

from tests.plugins.shipped.certificates import authority
from tests.plugins.shipped.server import Reply, Request, as_json, serving
from trunkline.plugins import PluginError
from trunkline.plugins.shipped.http_client import HttpAnswer, HttpClient, HttpFailure, HttpSettings


async def ask(url: str, method: str = "POST", content: bytes | None = b"body", **settings: Any) -> HttpAnswer:
    client = HttpClient(HttpSettings(**settings))
    try:
        return await client.request(method, url, content)
    finally:
        await client.aclose()


async def failure(url: str, **settings: Any) -> str:
    with pytest.raises(HttpFailure) as raised:
        await ask(url, **settings)
    return str(raised.value)


async def test_a_request_and_its_answer() -> None:
    with serving(as_json({"a": 1}, 201)) as server:
        answer = await ask(server.url("/x?y=1"), headers={"Authorization": SecretStr("Bearer t")})
    assert answer == HttpAnswer(201, "application/json", b'{"a": 1}')
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("POST", "/x?y=1", b"body")
    assert request.headers["Authorization"] == "Bearer t"
    assert request.headers["User-Agent"].startswith("trunkline/")


async def test_connections_are_used_again_and_not_more_than_there_may_be() -> None:
    with serving(Reply(204)) as server:
        client = HttpClient(HttpSettings(pool_size=2))
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(client.request, "GET", server.url())
        assert len(server.requests) == 15
        assert server.connections <= 2
        await client.aclose()


async def test_a_connection_that_the_service_has_closed_meanwhile() -> None:
    answers = [Reply(204), Reply(raw=b""), Reply(200, b"second")]
    with serving(lambda request: answers.pop(0)) as server:
        client = HttpClient(HttpSettings())
        assert (await client.request("GET", server.url())).status == 204
        assert (await client.request("GET", server.url())).body == b"second"
        await client.aclose()


async def test_a_service_that_says_nothing(mock_clock: MockClock) -> None:
    with serving(Reply(silent=True)) as server:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def impatient() -> None:
                assert await failure(server.url(), request_timeout=7) == "no answer within 7 s"

            await server.wait(1)
            mock_clock.jump(7)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(raw=b"\x00\x01 what?\r\n\r\n"), "RemoteProtocolError: "),
        (Reply(raw=b""), "RemoteProtocolError: Server disconnected"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "RemoteProtocolError: "),
        (Reply(body=b"x" * 1001), "longer than 1000 bytes"),
        (Reply(body=b"x" * 100, endless=True), "longer than 1000 bytes"),
        (Reply(headers={"Content-Encoding": "gzip"}), "compressed"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"b" * 200_000), "RemoteProtocolError: "),
    ],
)
async def test_what_cannot_be_used(reply: Reply, words: str) -> None:
    with serving(reply) as server:
        found = await failure(server.url(), max_response_size=1000)
    assert words in found
    assert len(found) <= 200


async def test_nobody_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert (await failure(f"http://127.0.0.1:{port}/")).startswith("ConnectError: ")


async def test_a_redirect_is_not_followed_and_a_cookie_not_kept() -> None:
    def answer(request: Request) -> Reply:
        return Reply(302, b"", {"Location": server.url("/elsewhere"), "Set-Cookie": "a=b"})

    with serving(answer) as server:
        client = HttpClient(HttpSettings())
        for _ in range(2):
            assert (await client.request("GET", server.url("/here"))).status == 302
        await client.aclose()
    assert [request.path for request in server.requests] == ["/here", "/here"]
    assert not any("Cookie" in request.headers for request in server.requests)


async def test_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(Reply(204)) as server:
        assert (await ask(server.url())).status == 204


async def test_nothing_of_a_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(Reply(204)) as server:
        await ask(server.url("/?password=hush"), headers={"Authorization": SecretStr("hush")}, content=b"hush")
    assert "hush" not in caplog.text


async def test_retry_after() -> None:
    for text, seconds in (("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("9" * 20, None)):
        with serving(Reply(503, headers={"Retry-After": text})) as server:
            assert (await ask(server.url())).retry_after == seconds


async def test_certificates(tmp_path: Path) -> None:
    good, ca_file = authority(tmp_path)
    with serving(Reply(204), tls=good) as server:
        assert (await ask(server.url(), ca_file=ca_file)).status == 204
        assert "certificate verify failed" in await failure(server.url())
        assert (await ask(server.url(), verify_tls=False)).status == 204


def test_a_file_without_certificates(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(PluginError, match=r"ca.pem has no certificates"):
        HttpClient(HttpSettings(ca_file=file))


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X Y": "a"}, "not a valid header name"),
        ({"X": "a\r\nY: b"}, "printable"),
        ({"": "a"}, "is not a valid header name"),
    ],
)
def test_headers_that_cannot_be_sent(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        HttpSettings(headers=headers)  # type: ignore[arg-type]
