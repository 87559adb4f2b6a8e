"""Subscriptions for threads: each message goes to one call, and none to a call that is over."""

import signal
import sys
import threading

import pytest
import trio

from tests.nats.servers import NatsServer
from trunkline.nats import sync

#: Seconds for what should come.
SOON = 60.0


def test_a_timeout_takes_no_message(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("a") as messages:
        with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s"):
            messages.receive(timeout=0.01)
        with pytest.raises(TimeoutError, match="nothing came within 0 s"):
            messages.receive(timeout=0)
        client.publish("a", b"1")
        assert messages.receive(timeout=SOON).payload == b"1"
        client.publish("a", b"2")
        client.flush(timeout=SOON)
        assert messages.receive(timeout=0).payload == b"2"


def test_a_block_may_outlive_the_client(server: NatsServer) -> None:
    client = sync.connect(server.url).open(timeout=SOON)
    with client.subscribe("a") as messages:
        client.close(timeout=SOON)
        assert list(messages) == []


def test_what_is_said_of_it(server: NatsServer) -> None:
    with sync.connect(server.url) as client, client.subscribe("a", queue="q", max_messages=2) as messages:
        for number in range(5):
            client.publish("a", b"%d" % number)
        client.flush(timeout=SOON)
        assert (messages.subject, messages.queue, messages.received, messages.dropped) == ("a", "q", 5, 3)
        assert len(messages) == 2
        assert messages.receive(timeout=SOON).payload == b"0"
        assert len(messages) == 1
        assert repr(messages).startswith("<Subscription 'a'")


def test_a_loop_ends_when_the_subscription_does(server: NatsServer) -> None:
    with sync.connect(server.url) as client:
        messages = client.subscribe("a")
        messages.unsubscribe(after=2)
        for number in range(3):
            client.publish("a", b"%d" % number)
        assert [message.payload for message in messages] == [b"0", b"1"]
        with pytest.raises(trio.EndOfChannel):
            messages.receive(timeout=SOON)
        with client.subscribe("b") as others:
            client.publish("b")
            client.flush(timeout=SOON)
            others.drain(timeout=SOON)
            assert len(list(others)) == 1


def test_several_threads_share_a_subscription(server: NatsServer) -> None:
    """Also when one of them stops: what was brought for it is there for the others."""
    found: list[int] = []
    count = 2000

    def some() -> None:
        for message in messages:
            found.append(int(message.payload))
            if len(found) > count // 2:
                return

    def rest() -> None:
        found.extend(int(message.payload) for message in messages)

    with sync.connect(server.url) as client, client.subscribe("n") as messages:
        threads = [threading.Thread(target=each) for each in (some, some, rest)]
        for thread in threads:
            thread.start()
        for number in range(count):
            client.publish("n", b"%d" % number)
        client.flush(timeout=SOON)
        messages.drain(timeout=SOON)
        for thread in threads:
            thread.join(SOON)
    assert sorted(found) == list(range(count))


@pytest.mark.skipif(sys.platform == "win32", reason="waiting for a lock is not interrupted there")
def test_an_interrupt_takes_no_message(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.connect(server.url) as client, client.subscribe("a") as messages:
        thread = client._thread
        run = thread.run

        def interrupted(*args: object) -> None:
            run(*args)  # type: ignore[arg-type]
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(thread, "run", interrupted)
        client.publish("a", b"1")
        with pytest.raises(KeyboardInterrupt):
            messages.receive(timeout=SOON)
        assert messages.receive(timeout=SOON).payload == b"1"
        monkeypatch.undo()
