"""A real HTTP server for the plugins to call, in a thread of its own: a test's clock does not reach it.

It answers as the test says, and misbehaves as it says: silence, garbage, endless or compressed answers.
"""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query, True).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Sent as it is, instead of a response; the connection closes after it.
    raw: bytes | None = None
    #: No answer until the server ends.
    silent: bool = False
    #: The body is sent over and over, until nobody reads it.
    endless: bool = False


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


class Server:
    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        #: May be replaced at any time.
        self.answer = answer
        self.requests: list[Request] = []
        #: Connections that were made.
        self.connections = 0
        self.over = threading.Event()
        self.port = 0
        self.scheme = "http"
        self._came = threading.Condition()

    def url(self, path: str = "/") -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def take(self, request: Request) -> Reply:
        with self._came:
            self.requests.append(request)
            self._came.notify_all()
        return self.answer(request)

    async def wait(self, count: int, patience: float = 120.0) -> list[Request]:
        """Until so many requests have come in all."""

        def waited() -> bool:
            with self._came:
                return self._came.wait_for(lambda: len(self.requests) >= count, patience)

        assert await trio.to_thread.run_sync(waited), f"{len(self.requests)} requests came, not {count}"
        return self.requests


@contextmanager
def serving(
    answer: Callable[[Request], Reply] | Reply = Reply(), tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Server]:
    server = Server(answer if callable(answer) else lambda request: answer)
    sockets = _Sockets(("127.0.0.1", port), _handler(server))
    if tls is not None:
        sockets.socket = tls.wrap_socket(sockets.socket, server_side=True, do_handshake_on_connect=False)
        server.scheme = "https"
    server.port = sockets.server_address[1]
    thread = threading.Thread(target=sockets.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        sockets.shutdown()
        sockets.server_close()
        thread.join()


class _Sockets(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away in between, or do not trust the certificate, are part of the tests."""


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            request = Request(self.command, self.path, dict(self.headers.items()), body)
            reply = server.take(request)
            if reply.silent:
                server.over.wait()
                self.close_connection = True
            elif reply.raw is not None:
                self.wfile.write(reply.raw)
                self.close_connection = True
            elif reply.endless:
                self._start(reply, {"Connection": "close"})
                while not server.over.is_set():
                    self.wfile.write(reply.body)
            else:
                length = {} if reply.status == 204 else {"Content-Length": str(len(reply.body))}
                self._start(reply, length)
                self.wfile.write(reply.body)

        do_POST = do_GET

        def _start(self, reply: Reply, more: Mapping[str, str]) -> None:
            self.send_response(reply.status)
            for name, value in (more | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
