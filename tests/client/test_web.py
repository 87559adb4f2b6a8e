"""Web applications whose threads share one client: a Flask application and a Django view, served over HTTP."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from trunkline import testing
from trunkline.client import ClientError, ConnectionSettings
from trunkline.client.sync import SessionClient

pytest.importorskip("flask")
pytest.importorskip("django")

Application = Callable[..., Any]


def flask_application(client: SessionClient) -> Application:
    from flask import Flask, request

    app = Flask(__name__)

    @app.post("/<topic>")
    def publish(topic: str) -> str:
        return str(client.publish(topic, request.get_data(), qos=1, timeout=30))

    @app.errorhandler(ClientError)
    def refused(error: ClientError) -> tuple[str, int]:
        return type(error).__name__, 503

    return app


def django_application(client: SessionClient) -> Application:
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    def publish(request: HttpRequest, topic: str) -> HttpResponse:
        try:
            return HttpResponse(str(client.publish(topic, request.body, qos=1, timeout=30)))
        except ClientError as error:
            return HttpResponse(type(error).__name__, status=503)

    settings.configure(ROOT_URLCONF=(path("<topic>", publish),), ALLOWED_HOSTS=["127.0.0.1"])
    return WSGIHandler()


@contextmanager
def served(application: Application) -> Iterator[str]:
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def post(url: str, body: bytes) -> tuple[int, str]:
    try:
        with urlopen(Request(url, body), timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("make", [flask_application, django_application])
def test_threads_of_an_application_share_a_client(make: Callable[[SessionClient], Application]) -> None:
    with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        client = SessionClient(ConnectionSettings.from_url(broker.url, client_id="web"))
        client.open(timeout=30)
        with served(make(client)) as url, ThreadPoolExecutor(4) as browsers:
            answers = [browsers.submit(post, f"{url}/t", b"%d" % number) for number in range(40)]
            broker.faults.cut(client="web")
            assert {answer.result() for answer in answers} == {(200, "16")}
            assert {message.payload for message in broker.messages} == {b"%d" % number for number in range(40)}
            broker.restart(keep_sessions=False)
            assert post(f"{url}/t", b"x") == (503, "SessionLost")
        with pytest.raises(ClientError, match="lost the session"):
            client.close()
