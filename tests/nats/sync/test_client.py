# ruff: noqa: PT012 - how a block ends is the matter here
"""The NATS client for code that does not await: its calls, timeouts, interrupts, threads, and its end."""

import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.nats.servers import KINDS, NatsServer, running
from trunkline import nats
from trunkline.nats import sync
from trunkline.nats.client.events import Event, Reconnected
from trunkline.nats.client.jetstream import JetStream, KeyValue, KeyValues, ObjectStore, ObjectStores
from trunkline.nats.client.jetstream.batch import Batch
from trunkline.nats.client.jetstream.chunks import ObjectReader
from trunkline.nats.client.jetstream.direct import DirectReader
from trunkline.nats.client.jetstream.fast_batch import FastBatch
from trunkline.nats.client.jetstream.message import JetStreamMessage
from trunkline.nats.client.jetstream.ordered import OrderedSubscription
from trunkline.nats.client.jetstream.publishing import Publisher, Receipt
from trunkline.nats.client.jetstream.pull import PullSubscription
from trunkline.nats.client.jetstream.push import PushSubscription
from trunkline.nats.client.jetstream.watching import Watch
from trunkline.nats.client.services import Group, Service, ServiceRequest
from trunkline.nats.errors import (
    BadSubject,
    BufferFull,
    ClientClosed,
    ConnectFailed,
    NatsError,
    NoResponders,
    RequestTimeout,
)

#: Seconds for what should come.
SOON = 60.0


@contextmanager
def answering(client: sync.Client, subject: str, *answers: bytes) -> Iterator[None]:
    """Another thread answers each request with all of these."""
    with client.subscribe(subject) as asked:
        client.flush(timeout=SOON)

        def answer() -> None:
            for message in asked:
                for each in answers:
                    message.respond(each, headers={"Asked": message.subject})

        thread = threading.Thread(target=answer)
        thread.start()
        yield
    thread.join(SOON)
    assert not thread.is_alive()


#: What the parts of the client call on each other.
INNER = {
    *("abandon", "acknowledge", "again", "ahead", "answer", "bind", "check", "client", "confirm"),
    *("denied", "end"),
    *("ignores_acks", "is_created", "is_over", "is_stopped", "max_received", "opened", "put", "receivers", "sid"),
    *(
        "commit",
        "encode",
        "post",
        "room",
        "send",
        "settle",
        "takes_reasons",
        "tell",
        "missed_heartbeats",
        "wait",
        "was_told",
        "write",
    ),
    *("attempts", "is_safe", "is_sent", "is_told", "sent_at"),
}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (sync.Client, nats.Client),
        (sync.Message, nats.Message),
        (sync.Subscription, nats.Subscription),
        (sync.JetStream, JetStream),
        (sync.JetStreamMessage, JetStreamMessage),
        (sync.PushSubscription, PushSubscription),
        (sync.OrderedSubscription, OrderedSubscription),
        (sync.PullSubscription, PullSubscription),
        (sync.Publisher, Publisher),
        (sync.Receipt, Receipt),
        (sync.Batch, Batch),
        (sync.FastBatch, FastBatch),
        (sync.DirectReader, DirectReader),
        (sync.KeyValues, KeyValues),
        (sync.KeyValue, KeyValue),
        (sync.ObjectStores, ObjectStores),
        (sync.ObjectStore, ObjectStore),
        (sync.ObjectReader, ObjectReader),
        (sync.Watch, Watch),
        (sync.Service, Service),
        (sync.Group, Group),
        (sync.ServiceRequest, ServiceRequest),
    ],
)
def test_the_names_and_arguments_are_the_same(ours: Any, theirs: Any) -> None:
    for name in dir(theirs):
        if name.startswith("_") or name in INNER:
            continue
        method, other = getattr(ours, name), getattr(theirs, name)
        if callable(other):
            waits = inspect.iscoroutinefunction(other) or hasattr(other, "__wrapped__")
            parameters = dict(inspect.signature(method).parameters)
            expected = dict(inspect.signature(other).parameters)
            assert ("timeout" in parameters) is (waits or "timeout" in expected) or name == "consume", name
            if "timeout" not in expected:
                parameters.pop("timeout", None)
            described = [str(each).replace("Awaitable[object]", "object") for each in expected.values()]
            assert [str(each) for each in parameters.values()] == described, name


def test_publish_and_receive(server: NatsServer) -> None:
    with sync.connect(server.url, name="shop") as client, client.subscribe("orders.>") as orders:
        assert client.is_connected
        assert client.url == server.url
        assert client.server["max_payload"] > 0
        assert client.settings.name == "shop"
        client.publish("orders.new", b"17", headers={"Source": "shop"}, reply="back", timeout=SOON)
        client.publish_nowait("orders.old", b"16")
        client.flush(timeout=SOON)
        first, second = orders.receive(timeout=SOON), orders.receive(timeout=SOON)
        assert (first.subject, first.payload, first.reply, first.headers["Source"]) == (
            *("orders.new", b"17", "back"),
            "shop",
        )
        assert first.status is None
        assert repr(second) == "<Message 'orders.old', 2 bytes>"
        with pytest.raises(NatsError, match="asks for no answer"):
            second.respond(b"")


def test_requests(server: NatsServer) -> None:
    with sync.connect(server.url) as client, answering(client, "clock", b"12:00", b"12:01", b"12:02"):
        answer = client.request("clock", timeout=SOON)
        assert (answer.payload, answer.headers["Asked"]) == (b"12:00", "clock")
        with client.request_many("clock", timeout=SOON, max_answers=3) as answers:
            assert [each.payload for each in answers] == [b"12:00", b"12:01", b"12:02"]
        with client.request_many("clock", timeout=SOON) as answers:
            for each in answers:
                assert each.payload == b"12:00"
                break
        with client.request_many("clock", timeout=0.3) as answers:
            assert len(list(answers)) == 3
        with pytest.raises(NoResponders, match="'nobody'"):
            client.request("nobody", timeout=SOON)
        with pytest.raises(NoResponders), client.request_many("nobody") as answers:
            list(answers)
        with client.subscribe("silent"), pytest.raises(RequestTimeout, match=r"within 0\.01 s"):
            client.request("silent", timeout=0.01)
        assert client.new_inbox() != client.new_inbox()


def test_errors_are_those_of_the_client(server: NatsServer) -> None:
    client = sync.connect(server.url)
    with pytest.raises(ClientClosed, match="the client is not open"):
        client.publish("a")
    with client:
        with pytest.raises(BadSubject):
            client.publish("a b")
        with pytest.raises(BadSubject):
            client.subscribe("a..b")
        with pytest.raises(RuntimeError, match="opened once"):
            client.open()
        with pytest.raises(ValueError, match="negative"):
            client.flush(timeout=-1)
    with pytest.raises(ClientClosed, match="the client is not open"):
        client.flush()
    with pytest.raises(ValueError, match="servers"):
        sync.connect([]).open(timeout=SOON)


def test_there_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    client = sync.connect(f"nats://127.0.0.1:{port}")
    with pytest.raises(ConnectFailed, match=str(port)), client:
        raise AssertionError
    with pytest.raises(ConnectFailed):
        client.publish("a")


def test_opening_takes_too_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = sync.connect(f"nats://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(TimeoutError, match=r"no connection within 0\.01 s"):
            client.open(timeout=0.01)
        client.close(timeout=SOON)


def test_an_error_of_the_block_is_not_replaced(server: NatsServer) -> None:
    with pytest.raises(KeyError, match="mine"), sync.connect(server.url):
        raise KeyError("mine")


def test_drain_sends_all_and_keeps_what_has_come(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("drained") as messages:
        for number in range(10):
            client.publish("drained", b"%d" % number)
        client.drain(timeout=SOON)
        assert [message.payload for message in messages] == [b"%d" % number for number in range(10)]
        with pytest.raises(ClientClosed):
            client.publish("drained")


def test_many_threads_share_one_client(server: NatsServer) -> None:
    found: list[bytes] = []
    with sync.connect(server.url) as client, answering(client, "echo", b"1"):

        def ask() -> None:
            found.extend(client.request("echo", timeout=SOON).payload for _ in range(20))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
    assert found == [b"1"] * 160


def test_publishing_waits_for_room_and_no_longer_than_it_may(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        lost = threading.Event()
        back = threading.Event()

        def told(event: Event) -> None:
            (back if isinstance(event, Reconnected) else lost).set()

        with sync.connect(server.url, max_pending=100, reconnect_wait=0.01, on_event=told) as client:
            server.kill()
            assert lost.wait(SOON)
            client.publish("a", b"x" * 60)
            with pytest.raises(BufferFull):
                client.publish_nowait("a", b"x" * 60)
            with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
                client.publish("a", b"x" * 60, timeout=0.01)
            with pytest.raises(TimeoutError):
                client.flush(timeout=0.01)
            server.start()
            client.publish("a", b"x" * 60, timeout=SOON)
            assert back.wait(SOON)
            client.flush(timeout=SOON)


def test_a_client_that_gives_up_says_so_to_all(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        lost = threading.Event()
        raised: list[BaseException] = []
        client = sync.connect(server.url, max_reconnects=0, on_event=lambda event: lost.set()).open(timeout=SOON)
        messages = client.subscribe("a")

        def loop() -> None:
            try:
                messages.receive()
            except NatsError as error:
                raised.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        server.kill()
        assert lost.wait(SOON)
        thread.join(SOON)
        assert len(raised) == 1
        with pytest.raises(ClientClosed, match="given up"):
            client.publish("a")
        with pytest.raises(NatsError):
            client.close(timeout=SOON)


def test_a_hook_may_publish_and_cannot_wait(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        said: list[str] = []
        done = threading.Event()

        def told(event: Event) -> None:
            if isinstance(event, Reconnected):
                client.publish_nowait("back")
                for call in (client.flush, client.close):
                    try:
                        call()
                    except RuntimeError as error:
                        said.append(str(error))
                done.set()

        client = sync.connect(server.url, reconnect_wait=0.01, on_event=told)
        with client, client.subscribe("back") as messages:
            client.flush(timeout=SOON)
            server.kill()
            server.start()
            assert messages.receive(timeout=SOON).subject == "back"
            assert done.wait(SOON)
        assert said == [
            "code in the thread of the client, such as a hook, cannot wait for the client",
            "a hook cannot close the client",
        ]


def interrupt_when(is_time: Callable[[], bool]) -> threading.Thread:
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not is_time():
            pass
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_ends_the_call_and_leaves_the_client_open(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("rare") as messages:
        thread = client._thread.opened
        with pytest.raises(KeyboardInterrupt):
            interrupt_when(lambda: bool(thread._waiting))
            messages.receive()
        client.publish("rare", b"1")
        assert messages.receive(timeout=SOON).payload == b"1"
        with pytest.raises(KeyboardInterrupt), client.subscribe("silent"):
            interrupt_when(lambda: bool(thread._waiting))
            client.request("silent", timeout=SOON)
        assert client.is_connected


def test_open_and_close_and_what_waits_meanwhile(server: NatsServer) -> None:
    client = sync.connect(server.url).open(timeout=SOON)
    messages = client.subscribe("a")
    ended: list[str] = []

    def loop() -> None:
        for _ in messages:
            raise AssertionError
        ended.append("loop")

    def ask() -> None:
        try:
            client.request("b", timeout=SOON)
        except ClientClosed:
            ended.append("request")

    threads = [threading.Thread(target=each) for each in (loop, ask)]
    waiting = client._thread.opened._waiting
    with sync.connect(server.url) as other, other.subscribe("b") as asked:
        other.flush(timeout=SOON)
        for thread in threads:
            thread.start()
        asked.receive(timeout=SOON)
        while len(waiting) < 2:
            pass
        client.close(timeout=SOON)
        client.close(timeout=SOON)
        for thread in threads:
            thread.join(SOON)
    assert sorted(ended) == ["loop", "request"]


def test_what_is_open_is_closed_when_the_interpreter_exits(server: NatsServer) -> None:
    program = f"""
from trunkline.nats import sync
client = sync.connect({server.url!r}).open(timeout=60)
client.publish("exits", b"last")
"""
    with sync.connect(server.url) as client, client.subscribe("exits") as messages:
        client.flush(timeout=SOON)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert messages.receive(timeout=SOON).payload == b"last"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_client_belongs_to_the_parent(server: NatsServer) -> None:
    with sync.connect(server.url) as client:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.publish("a")
            except RuntimeError as error:
                status = 0 if "was forked" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.flush(timeout=SOON)


def test_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(
        """
from typing import assert_type
from trunkline.nats.sync import Client, JetStreamMessage, Message, PullSubscription, connect

def use() -> None:
    with connect("nats://127.0.0.1:4222") as client:
        assert_type(client, Client)
        assert_type(client.request("a", timeout=1), Message)
        with client.subscribe("a") as messages:
            assert_type(messages.receive(timeout=1), Message)
            for message in messages:
                assert_type(message, Message)
        with client.request_many("a") as answers:
            for answer in answers:
                assert_type(answer, Message)
        with client.jetstream().subscribe_pull("a") as pulled:
            assert_type(pulled, PullSubscription)
            assert_type(pulled.fetch(1), list[JetStreamMessage])
            for each in pulled:
                assert_type(each, JetStreamMessage)
        client.publish("a", payloads=b"")  # type: ignore[call-arg]
"""
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "typed.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stdout
