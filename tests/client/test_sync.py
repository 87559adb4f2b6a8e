# ruff: noqa: PT012 - how a block ends is the matter here
"""The client for code that does not await: its calls, timeouts, interrupts, threads, and its end."""

import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from trunkline import client as trio_client
from trunkline import testing
from trunkline.client import block, sync
from trunkline.client.client_thread import ClientThread
from trunkline.client.errors import (
    ClientClosed,
    ClientError,
    ConnectFailed,
    Disconnected,
    DisconnectedByServer,
    PublishRefused,
    RequestQueueFull,
    SessionLost,
    SubscribeRefused,
)
from trunkline.client.retry import ExponentialBackoff
from trunkline.client.settings import ConnectionSettings
from trunkline.hooks.decisions import Deny
from trunkline.mqtt.packets import Connack
from trunkline.testing import ThreadBroker

AT_ONCE = ExponentialBackoff(first=0.001, largest=0.01, jitter=0)
#: Seconds for what should come.
SOON = 60.0


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        yield broker


def settings_of(broker: ThreadBroker, **settings: Any) -> ConnectionSettings:
    return ConnectionSettings.from_url(broker.url, client_id="c", **settings)


def client_of(broker: ThreadBroker, *, max_queued: int = 1000, **settings: Any) -> sync.Client:
    return sync.Client(settings_of(broker, **settings), max_queued=max_queued)


def session_of(broker: ThreadBroker, **options: Any) -> sync.SessionClient:
    return sync.SessionClient(settings_of(broker), retry=AT_ONCE, **options)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


# Every call


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (sync.Client, trio_client.Client),
        (sync.SessionClient, trio_client.SessionClient),
        (sync.Subscription, trio_client.Subscription),
        (sync.Receiver, trio_client.Receiver),
        (sync.Receipt, trio_client.Receipt),
    ],
)
def test_the_names_and_arguments_are_the_same(ours: Any, theirs: Any) -> None:
    #: What the parts of the client call on each other.
    inner = {"wake", "answer", "abandon", "sent", "hand_over", "may_read", "unsubscribe", "unsubscribe_soon", "failure"}
    inner |= {
        "write_now",
        "call_later",
        "put",
        "withdraw",
        "end",
        "some",
        "pop",
        "poll",
        "polled",
        "left",
        "is_over",
        "is_crowded",
        "is_subscribed",
        "identifier",
    }
    for name in dir(theirs):
        if name.startswith("_") or name in inner:
            continue
        method, other = getattr(ours, name), getattr(theirs, name)
        if callable(other):
            waits = inspect.iscoroutinefunction(other)
            parameters = dict(inspect.signature(method).parameters)
            assert ("timeout" in parameters) is waits, name
            parameters.pop("timeout", None)
            expected = dict(inspect.signature(other).parameters)
            expected.pop("timeout", None)  # of `request`, which has one for its server, too
            described = [str(each).replace(" | AsyncIterable[bytes | str]", "") for each in expected.values()]
            assert [str(each) for each in parameters.values()] == described, name
    if issubclass(ours, sync.Client | sync.SessionClient):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_receive(broker: ThreadBroker, qos: int) -> None:
    with client_of(broker) as client, client.subscribe("a/#", qos=2, timeout=SOON) as messages:
        assert messages.filters == ("a/#",)
        assert messages.granted == {"a/#": 2}
        assert client.publish("a/b", "x", qos=qos, timeout=SOON) == 0
        message = messages.receive(timeout=SOON)
        assert (message.topic, message.payload, message.qos) == ("a/b", b"x", qos)
        assert message.is_acknowledged
        client.publish_many("a", (b"%d" % number for number in range(1000)), qos=qos, timeout=SOON)
        assert [messages.receive(timeout=SOON).payload for _ in range(1000)] == [b"%d" % each for each in range(1000)]
        assert len(messages) == messages.dropped == 0
        assert (client.client_id, client.connack.reason, client.server.maximum_qos) == ("c", 0, 2)
    assert broker.clients == []


def test_its_settings_are_those_that_it_was_given(broker: ThreadBroker) -> None:
    settings = settings_of(broker, keep_alive=77)
    assert sync.Client(settings).settings is settings


def test_a_receipt(broker: ThreadBroker) -> None:
    with client_of(broker) as client:
        receipt = client.publish_nowait("a", "x", qos=1)
        assert receipt.wait(timeout=SOON) == 0x10
        assert receipt.is_done
        held = broker.faults.drop("PUBACK")
        receipt = client.publish_nowait("a", "y", qos=1)
        with pytest.raises(TimeoutError):
            receipt.wait(timeout=0)
        assert not receipt.is_done
        held.remove()
        receipt.cancel()


def test_errors_are_those_of_the_client(broker: ThreadBroker) -> None:
    broker.hooks.add("client.check_acl", lambda *_: Deny())
    with client_of(broker) as client:
        with pytest.raises(PublishRefused):
            client.publish("a", qos=1)
        with pytest.raises(SubscribeRefused):
            client.subscribe("a")
        with pytest.raises(ValueError, match="QoS"):
            client.publish("a", qos=3)


def test_the_queue_is_limited(broker: ThreadBroker) -> None:
    broker.faults.drop("PUBACK")
    with client_of(broker, max_queued=2, max_inflight=1) as client:
        receipts = [client.publish_nowait("a", qos=1) for _ in range(3)]
        with pytest.raises(RequestQueueFull):
            client.publish_nowait("a", qos=1)
        with pytest.raises(TimeoutError, match="no answer within 0.01 s"):
            client.publish("a", qos=1, timeout=0.01)
        for receipt in receipts:
            receipt.cancel()


def test_messages_of_a_session_before_it_is_resumed(broker: ThreadBroker) -> None:
    with session_of(broker, keep_session=True) as first:
        first.subscribe("a", qos=1)
    broker.publish("a", "x", qos=1)
    client = sync.SessionClient(settings_of(broker, clean_start=False), retry=AT_ONCE)
    messages = client.receive_from("a")
    with client:
        assert messages.receive(timeout=SOON).payload == b"x"
        client.unsubscribe_from("a", timeout=SOON)
        assert broker.subscriptions == []
        messages.close()


# Loops


def test_a_loop_acknowledges_what_it_has_done(broker: ThreadBroker) -> None:
    with client_of(broker) as client, client.subscribe("a", qos=1) as messages:
        client.publish_many("a", [b"0", b"1", b"2", b"3"], qos=1)
        seen: list[Any] = []
        for message in messages:
            assert all(each.is_acknowledged for each in seen)
            assert not message.is_acknowledged
            seen.append(message)
            if message.payload == b"1":
                break
        assert not seen[1].is_acknowledged
        for message in messages:
            assert seen[1].is_acknowledged
            message.auto_ack = False
            if message.payload == b"3":
                break
            seen.append(message)
        assert not seen[2].is_acknowledged
        seen[2].ack()
    assert not message.is_acknowledged


def test_a_handler_that_raises_holds_up_no_acknowledgement(broker: ThreadBroker) -> None:
    acked: list[bytes] = []
    broker.hooks.add("message.acked", lambda client, message: acked.append(message.payload))
    with client_of(broker) as client:
        first, second = client.subscribe("a", qos=1), client.subscribe("b", qos=1)

        def fail() -> None:
            with suppress(LookupError):
                for _ in first:
                    raise LookupError

        for number, is_main in enumerate((True, False)):
            client.publish("a", f"a{number}", qos=1)
            client.publish("b", f"b{number}", qos=1)
            fail() if is_main else in_thread(fail).join(SOON)
            second.receive(timeout=SOON)
            broker.wait_until(lambda: len(acked) == 2 * number + 2)  # noqa: B023 - called at once
    assert acked == [b"a0", b"b0", b"a1", b"b1"]


def test_who_asks_a_receiver_that_has_ended_goes_on_with_the_client(broker: ThreadBroker) -> None:
    acked: list[bytes] = []
    broker.hooks.add("message.acked", lambda client, message: acked.append(message.payload))
    with client_of(broker) as client:
        messages, ended = client.subscribe("a", qos=1), client.subscribe("b")
        ended.unsubscribe()
        client.publish("a", "x", qos=1)
        for _ in messages:
            break
        with pytest.raises(trio.EndOfChannel):
            ended.receive(timeout=SOON)
        broker.wait_until(lambda: acked == [b"x"])


@pytest.mark.parametrize("error", [None, LookupError])
def test_a_block_that_is_left_acknowledges_what_a_loop_that_goes_on_has(
    broker: ThreadBroker, error: type[Exception] | None
) -> None:
    acked: list[bytes] = []
    broker.hooks.add("message.acked", lambda client, message: acked.append(message.payload))
    with client_of(broker) as client:
        client.publish("a", "x", qos=1)
        with suppress(LookupError), client.subscribe("a", qos=1) as messages:
            client.publish("a", "x", qos=1)
            loop = iter(messages)
            next(loop)
            if error is not None:
                raise error
        broker.wait_until(lambda: acked == [b"x"])
        with pytest.raises(StopIteration):
            next(loop)


def test_an_interrupted_loop_leaves_its_message_to_the_next_connection(broker: ThreadBroker) -> None:
    acked: list[bytes] = []
    broker.hooks.add("message.acked", lambda client, message: acked.append(message.payload))
    client = session_of(broker, keep_session=True)
    with suppress(KeyboardInterrupt), client, client.subscribe("a", qos=1) as messages:
        client.publish("a", "x", qos=1)
        for _ in messages:
            raise KeyboardInterrupt
    assert acked == []


def test_acknowledgements_from_any_thread_reach_the_server_in_order(broker: ThreadBroker) -> None:
    acked: list[bytes] = []
    broker.hooks.add("message.acked", lambda client, message: acked.append(message.payload))
    with client_of(broker) as client, client.subscribe("a", qos=1, manual_ack=True) as messages:
        client.publish_many("a", [b"0", b"1", b"2"], qos=1)
        found = [messages.receive(timeout=SOON) for _ in range(3)]
        for message in reversed(found):
            in_thread(message.ack).join()
        broker.wait_until(lambda: len(acked) == 3)
        assert acked == [b"0", b"1", b"2"]


def test_a_loop_ends_when_the_subscription_does(broker: ThreadBroker) -> None:
    with client_of(broker) as client:
        messages = client.subscribe("a")
        client.publish("a", "x")
        seen: list[bytes] = []
        for message in messages:
            seen.append(message.payload)
            messages.unsubscribe(timeout=SOON)
        assert seen == [b"x"]
        with pytest.raises(trio.EndOfChannel):
            messages.receive()
    assert broker.subscriptions == []


@pytest.mark.parametrize(("kind", "qos"), [(sync.Client, 1), (sync.SessionClient, 0)])
def test_what_came_before_the_end_of_the_client_is_handed_out_first(
    broker: ThreadBroker, kind: type[sync.Client | sync.SessionClient], qos: int
) -> None:
    client = kind(settings_of(broker)).open()
    one, many = client.subscribe("one", qos=qos), client.subscribe("many")
    for topic in ("one", "many", "many"):
        client.publish(topic, "x", qos=1)
    with client_of(broker):  # takes the session over
        with pytest.raises(DisconnectedByServer):
            client.publish_nowait("a", qos=1).wait(timeout=SOON)
        assert one.receive(timeout=SOON).payload == b"x"
        with pytest.raises(DisconnectedByServer):
            one.receive(timeout=SOON)
        loop = iter(many)
        assert [next(loop).payload for _ in range(2)] == [b"x", b"x"]
        with pytest.raises(DisconnectedByServer):
            next(loop)
        with pytest.raises(DisconnectedByServer):
            client.close()


def test_what_comes_while_a_call_begins_is_handed_out_before_the_end(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(broker).open()
    messages = client.subscribe("a")
    run = ClientThread[Any].run

    def run_late(thread: ClientThread[Any], *args: Any) -> object:
        monkeypatch.undo()
        client.publish("a", "x", qos=1)
        broker.kick("c")
        thread.opened.finished.exception(SOON)
        return run(thread, *args)

    monkeypatch.setattr(ClientThread, "run", run_late)
    assert messages.receive(timeout=SOON).payload == b"x"
    with pytest.raises(DisconnectedByServer):
        client.close()


def test_several_threads_share_a_subscription(broker: ThreadBroker) -> None:
    found: list[bytes] = []
    first = threading.Barrier(4)
    with client_of(broker) as client:
        messages = client.subscribe("a", qos=1)

        def work() -> None:
            for number, message in enumerate(messages):
                if not number:
                    first.wait(SOON)  # so that each of them has one
                found.append(message.payload)
                if len(found) == 500:
                    messages.unsubscribe()

        threads = [in_thread(work) for _ in range(4)]
        client.publish_many("a", [b"%d" % number for number in range(500)], qos=1)
        for thread in threads:
            thread.join(SOON)
    assert sorted(found, key=int) == [b"%d" % number for number in range(500)]


def test_more_messages_than_have_room(broker: ThreadBroker) -> None:
    with sync.Client(settings_of(broker), max_buffered=10) as client, client.subscribe("a") as messages:
        for number in range(1000):
            broker.publish("a", b"%d" % number)
        assert [messages.receive(timeout=SOON).payload for _ in range(1000)] == [b"%d" % each for each in range(1000)]


def test_a_timeout_takes_no_message(broker: ThreadBroker) -> None:
    with client_of(broker) as client, client.subscribe("a") as messages:
        with pytest.raises(TimeoutError, match="no message within 0.01 s"):
            messages.receive(timeout=0.01)
        for number in range(20):
            with pytest.raises(TimeoutError):
                messages.receive(timeout=0)
            client.publish("a", b"%d" % number)
            assert messages.receive(timeout=SOON).payload == b"%d" % number


# Threads and interrupts


def test_many_threads_share_one_client(broker: ThreadBroker) -> None:
    broken: list[Exception] = []
    with client_of(broker) as client, client.subscribe("#", qos=1) as messages:

        def use(number: int) -> None:
            try:
                for _ in range(25):
                    client.publish(f"a/{number}", "x", qos=1, timeout=SOON)
                    client.publish_nowait(f"a/{number}", "y", qos=1).wait(timeout=SOON)
            except ClientError as error:
                broken.append(error)

        threads = [in_thread(lambda number=number: use(number)) for number in range(8)]  # type: ignore[misc]
        for _ in range(400):
            messages.receive(timeout=SOON)
        for thread in threads:
            thread.join(SOON)
    assert not broken


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_ends_the_call_and_leaves_the_client_open(broker: ThreadBroker) -> None:
    main = threading.main_thread().ident
    assert main is not None
    held = broker.faults.drop("PUBACK")
    with client_of(broker) as client, client.subscribe("a") as messages:

        def interrupt() -> None:
            held.triggered()
            signal.pthread_kill(main, signal.SIGINT)

        thread = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.publish("a", "x", qos=1)
        thread.join()
        held.remove()
        with pytest.raises(KeyboardInterrupt):
            for message in messages:
                assert message.payload == b"x"
                in_thread(lambda: signal.pthread_kill(main, signal.SIGINT))
        client.publish("a", "y", qos=1, timeout=SOON)
        assert messages.receive(timeout=SOON).payload == b"y"


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_leaves_the_block_in_order(broker: ThreadBroker) -> None:
    with pytest.raises(KeyboardInterrupt), session_of(broker) as client, client.subscribe("a", qos=1) as messages:
        client.publish("a", "x", qos=1)
        client.publish("a", "y", qos=1)
        seen = []
        for message in messages:
            seen.append(message)
            raise KeyboardInterrupt
    assert not seen[0].is_acknowledged
    assert broker.sessions == []


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_ends_opening() -> None:
    main = threading.main_thread().ident
    assert main is not None
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def interrupt() -> None:
            connection, _ = silent.accept()
            assert connection.recv(1) == b"\x10"  # CONNECT
            signal.pthread_kill(main, signal.SIGINT)
            while connection.recv(100):  # until the client is gone
                pass
            connection.close()

        thread = threading.Thread(target=interrupt)
        client = sync.Client(ConnectionSettings(host="127.0.0.1", port=silent.getsockname()[1]))
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            client.open()
        thread.join(SOON)
        assert not thread.is_alive()
    with pytest.raises(ClientClosed):
        client.publish("a")


def test_an_interrupt_while_the_thread_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "trunkline client":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SOON)
        client = sync.Client(ConnectionSettings(host="127.0.0.1", port=silent.getsockname()[1]))
        with pytest.raises(KeyboardInterrupt):
            client.open()
        with pytest.raises(ClientClosed):
            client.publish("a")


# Connections


def test_requests_wait_for_the_next_connection(broker: ThreadBroker) -> None:
    events: list[object] = []
    client = session_of(broker, on_connected=events.append, on_disconnected=events.append)
    with client, client.subscribe("a", qos=1) as messages:
        assert client.is_connected
        broker.faults.cut(before="PUBACK", times=1)
        client.publish("a", "x", qos=1, timeout=SOON)
        client.connected(timeout=SOON)
        assert messages.receive(timeout=SOON).payload == b"x"
        with pytest.raises(TimeoutError):
            client.disconnected(timeout=0)
    assert [type(event) for event in events] == [Connack, Disconnected, Connack]


def test_a_hook_may_publish_and_cannot_wait(broker: ThreadBroker) -> None:
    errors: list[Exception] = []

    def greet(connack: Connack) -> None:
        client.publish_nowait("greeting", "x")
        for use in (lambda: client.publish("greeting"), client.close):
            try:
                use()
            except RuntimeError as error:
                errors.append(error)

    client = session_of(broker, on_connected=greet)
    with client:
        broker.wait_for("greeting")
    assert [str(error) for error in errors] == [
        "code in the thread of the client, such as a hook, cannot wait for the client",
        "a hook cannot close the client",
    ]


def test_a_hook_that_raises_ends_the_client(broker: ThreadBroker) -> None:
    def fail(connack: Connack) -> None:
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"), session_of(broker, on_connected=fail) as client:
        client.disconnected(timeout=SOON)


def test_the_loss_of_the_session_is_raised_in_every_thread_and_at_the_end(broker: ThreadBroker) -> None:
    errors: list[str] = []
    subscribed = threading.Barrier(5)
    with pytest.raises(SessionLost), session_of(broker) as client:

        def work() -> None:
            messages = client.subscribe("a")
            subscribed.wait(SOON)
            for use in (lambda: [*messages], lambda: client.publish("a"), messages.receive, client.connected):
                try:
                    use()
                except ClientError as error:
                    errors.append(type(error).__name__)

        threads = [in_thread(work) for _ in range(4)]
        subscribed.wait(SOON)
        broker.restart(keep_sessions=False)
        for thread in threads:
            thread.join(SOON)
        with pytest.raises(SessionLost):
            client.publish("a")
    assert errors == ["SessionLost"] * 16


def test_an_error_of_the_block_is_not_replaced(broker: ThreadBroker) -> None:
    with pytest.raises(LookupError), client_of(broker) as client:
        broker.kick("c")
        with pytest.raises(Disconnected):
            client.subscribe("a").receive(timeout=SOON)
        raise LookupError


def test_there_is_no_server() -> None:
    with pytest.raises(ConnectFailed), sync.Client(ConnectionSettings(host="127.0.0.1", port=1)):
        pytest.fail("it opens")


# Without a block


def test_open_and_close(broker: ThreadBroker) -> None:
    client = client_of(broker)
    client.close()
    client.receive_from("b").close()
    with pytest.raises(ClientClosed):
        client.publish("a")
    assert client.open(timeout=SOON) is client
    with pytest.raises(RuntimeError, match="opened once"):
        client.open()
    messages = client.subscribe("a")
    client.disconnect(timeout=SOON)
    with pytest.raises(ClientClosed):
        client.publish("a")
    assert [*messages] == []
    client.close(timeout=SOON)
    client.close()
    assert [*messages] == []
    with pytest.raises(ClientClosed):
        client.publish("a")


@pytest.mark.parametrize("in_block", [True, False])
def test_closing_waits_for_what_was_published_without_waiting(broker: ThreadBroker, in_block: bool) -> None:
    client = client_of(broker, max_inflight=1)  # so that most of it is not even sent
    client.open()
    receipts = [client.publish_nowait("t", "x", qos=2) for _ in range(100)]
    if in_block:
        client.__exit__(None, None, None)
    else:
        client.close()
    assert [receipt.error for receipt in receipts] == [None] * 100
    assert all(receipt.is_done for receipt in receipts)


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_ends_that_waiting(broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "CLOSE_TIMEOUT", 10 * SOON)
    main = threading.main_thread().ident
    assert main is not None
    held = broker.faults.drop("PUBACK")
    client = client_of(broker).open()
    client.publish_nowait("t", "x", qos=1)
    held.triggered()

    def interrupt() -> None:
        thread = client._thread.opened
        while not thread._leaving.is_set():
            pass
        signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        in_thread(interrupt)
        client.close()
    client.close(timeout=SOON)


def test_an_interrupt_ends_that_waiting_before_it_has_begun(
    broker: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "CLOSE_TIMEOUT", 10 * SOON)
    broker.faults.drop("PUBACK")
    client = client_of(broker).open()
    client.publish_nowait("t", "x", qos=1)
    thread = client._thread.opened
    leave = thread.leave

    def leave_and_interrupt() -> None:
        leave()
        raise KeyboardInterrupt

    monkeypatch.setattr(thread, "leave", leave_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert thread.outcome(SOON) is None


def test_close_ends_what_waits_in_other_threads(broker: ThreadBroker) -> None:
    errors: list[BaseException] = []
    held = broker.faults.drop("PUBACK")
    client = client_of(broker).open()

    def wait() -> None:
        try:
            client.publish("a", qos=1)
        except ClientClosed as error:
            errors.append(error)

    thread = in_thread(wait)
    held.triggered()
    client.close()
    thread.join(SOON)
    assert len(errors) == 1


def test_opening_takes_too_long(broker: ThreadBroker) -> None:
    broker.faults.drop("CONNACK").optional()  # that far it may not come
    client = client_of(broker)
    with pytest.raises(TimeoutError, match="no connection within 0.01 s"):
        client.open(timeout=0.01)
    with pytest.raises(ClientClosed):
        client.publish("a")


def test_closing_takes_too_long(broker: ThreadBroker) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(error: ClientError) -> None:
        held.set()
        go_on.wait(SOON)

    client = session_of(broker, on_disconnected=hold).open()
    broker.kick("c")
    held.wait(SOON)
    with pytest.raises(TimeoutError, match="does not close within 0.01 s"):
        client.close(timeout=0.01)
    go_on.set()
    client.close(timeout=SOON)


SCRIPT = """
import os, sys, warnings
from trunkline.client.errors import ClientError
from trunkline.client.sync import SessionClient
from trunkline.client.settings import ConnectionSettings
settings = ConnectionSettings.from_url(sys.argv[1])
"""


def run(script: str, broker: ThreadBroker) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT + script, broker.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_open_is_closed_when_the_interpreter_exits(broker: ThreadBroker) -> None:
    script = """
client = SessionClient(settings).open()
client.publish_nowait("a", "last words", qos=1)
"""
    run(script, broker)
    broker.assert_published("a", payload=b"last words")
    assert broker.connections[-1].ended.startswith("normal_disconnection")
    assert broker.sessions == []


def test_the_interpreter_exits_while_there_is_no_connection(broker: ThreadBroker) -> None:
    script = """
import threading
client = SessionClient(settings).open()
messages = client.subscribe("a")
threading.Thread(target=lambda: [*messages], daemon=True).start()
client.publish_nowait("end", qos=1)
client.disconnected()
"""

    @broker.hooks.on("message.publish")
    def fall_silent(client: object, message: object) -> None:
        broker.faults.drop("CONNACK").optional()  # that far it may not come

    broker.faults.cut(before="PUBACK")
    run(script, broker)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_after_a_fork_the_client_belongs_to_the_parent(broker: ThreadBroker) -> None:
    script = """
late = SessionClient(settings)
with SessionClient(settings) as client, client.subscribe("a") as messages:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        client.publish("parent", qos=1)
    else:
        for use in (client.subscribe, messages.receive, client.connected):
            try:
                use()
            except RuntimeError as error:
                print(error)
        with late:  # was not open
            late.publish("child", qos=1)
        client.close()
        sys.exit()
"""
    lines = run(script, broker).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("the client was started in process ")
        assert line.endswith(", which was forked: start another one here")
    broker.assert_published("child")
    broker.assert_published("parent")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_asks(broker: ThreadBroker) -> None:
    with session_of(broker) as client:
        is_locked, go_on = threading.Event(), threading.Event()

        def ask() -> None:
            with client._thread.opened._token._reentry_queue.lock:
                is_locked.set()
                go_on.wait(SOON)

        thread = in_thread(ask)
        is_locked.wait(SOON)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the child if it hangs
            signal.alarm(int(SOON))
            client.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        go_on.set()
        thread.join()
        assert status == 0


def test_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(
        """
from typing import assert_type
from trunkline.client import ReceivedMessage
from trunkline.client.sync import Client, Receipt, SessionClient, Subscription

def use(client: Client | SessionClient) -> None:
    assert_type(client.publish("a", timeout=1), int)
    assert_type(client.publish_nowait("a"), Receipt)
    with client.subscribe("a", timeout=1) as messages:
        assert_type(messages, Subscription)
        assert_type(messages.receive(timeout=1), ReceivedMessage)
        for message in messages:
            assert_type(message, ReceivedMessage)
    client.publish("a", qoss=1)  # type: ignore[call-arg]
    client.subscribe(1)  # type: ignore[arg-type]
"""
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "typed.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
