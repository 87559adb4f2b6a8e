"""paho-mqtt with a broker that has more files open than its mark allows."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.paho_client import V5, V311, Paho, payloads
from tests.interop.server import Broker, chosen, running

#: More than the broker needs itself and for the clients here.
CROWD = 60
NUMBER = 500


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if chosen() != "trunkline":
        pytest.skip("the marks are Trunkline's")
    marks = f"interval = 0.05\nfiles_high = {CROWD}\nfiles_low = {CROWD}\n"
    with running(tmp_path, more=f"[overload]\n{marks}") as broker:
        yield broker


@pytest.mark.parametrize(("version", "code"), [(V5, 0x97), (V311, 0x88)])  # paho shows return code 3 as 0x88
def test_others_are_refused_and_nothing_is_lost(broker: Broker, version: int, code: int) -> None:
    with Paho(broker, "p", version, max_inflight=100) as publisher, Paho(broker, "s", version) as subscriber:
        subscriber.subscribe("t", 1)
        publisher.publish("t", b"before", 1)
        with ExitStack() as crowd:
            for _ in range(CROWD):
                crowd.callback(socket.create_connection((broker.host, broker.port)).close)
            while True:  # the mark is found exceeded at the next measurement
                late = Paho(broker, "late", version)
                reason = late.connect()
                late.disconnect()
                if reason.is_failure:
                    break
            assert reason.value == code
            sent = [publisher.send("t", b"%d" % number, 1) for number in range(NUMBER)]
            for each in sent:
                publisher.wait_published(each)
            expected = [b"before", *[b"%d" % number for number in range(NUMBER)]]
            assert payloads(subscriber.receive_many(NUMBER + 1)) == expected
    said = broker.log.read_text()
    assert "overload_files: open files" in said
    assert "overload.files acted for 1 client" in said
    assert "overload.publishers acted for 1 client: overload.files_high" in said
