"""Requests that are cut: by a plugin's reload, or by their time limit."""

import gc

import pytest
import trio
import trio.testing

from trunkline.plugins.shipped.http_client import HttpClient, HttpSettings

#: More than fits into a socket.
LONG = bytes(1 << 25)


@pytest.mark.parametrize(
    ("content", "answer"),
    [(LONG, b""), (b"", b""), (b"x", b""), (b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")],
    ids=["the body is written", "no body", "the answer is awaited", "the answer is read"],
)
async def test_a_request_that_is_cut_leaves_nothing_open(content: bytes, answer: bytes) -> None:
    """The collector would find it, and warn."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    client = HttpClient(HttpSettings())
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(client.request, "POST", f"http://127.0.0.1:{port}/", content)
        async with await listener.accept() as stream:
            await stream.receive_some(1)
            await stream.send_all(answer)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    await client.aclose()
    gc.collect()
