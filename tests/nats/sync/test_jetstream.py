"""Streams and consumers for threads, with real servers of two versions."""

from dataclasses import replace

import pytest

from tests.nats.servers import NatsServer
from trunkline.nats import sync
from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.replies import (
    ConsumerMissing,
    MessageMissing,
    NameTaken,
    NotEnabled,
    StreamMissing,
    WrongLast,
)

#: Seconds for what should come.
SOON = 60.0
LAMPS = StreamConfig(name="lamps", subjects=("lamps.>",))


def test_all_that_is_managed(server: NatsServer) -> None:
    with sync.connect(server.url) as client:
        js = client.jetstream(timeout=SOON)
        assert js.prefix == "$JS.API"
        assert js.create_stream(LAMPS, timeout=SOON).config.name == "lamps"
        with pytest.raises(NameTaken):
            js.create_stream(replace(LAMPS, subjects=("other.>",)))
        first = js.publish("lamps.hall", b"on", headers={"By": "me"}, message_id="1", timeout=SOON)
        assert (first.stream, first.sequence, first.duplicate) == ("lamps", 1, False)
        assert js.publish("lamps.hall", b"on", message_id="1").duplicate
        with pytest.raises(WrongLast):
            js.publish("lamps.hall", b"off", expected_last_sequence=7)
        js.publish("lamps.hall", b"off", expected_stream="lamps", expected_last_sequence=1, timeout=SOON)
        found = js.get("lamps", 1, timeout=SOON)
        assert (found.payload, found.headers["By"]) == (b"on", "me")
        assert js.get("lamps", last="lamps.hall").sequence == 2
        js.delete_message("lamps", 1, erase=True, timeout=SOON)
        with pytest.raises(MessageMissing):
            js.get("lamps", 1)
        assert js.update_stream(replace(LAMPS, description="of the house"), timeout=SOON).config.description
        assert js.stream("lamps", timeout=SOON).state.messages == 1
        assert [each.config.name for each in js.streams("lamps.hall", timeout=SOON)] == ["lamps"]
        assert js.stream_of("lamps.hall", timeout=SOON) == "lamps"
        assert js.create_consumer("lamps", ConsumerConfig(durable="a"), timeout=SOON).name == "a"
        assert js.new_consumer("lamps", ConsumerConfig(durable="b"), timeout=SOON).name == "b"
        assert js.consumer("lamps", "a", timeout=SOON).name == "a"
        assert {each.name for each in js.consumers("lamps", timeout=SOON)} == {"a", "b"}
        account = js.account_info(timeout=SOON)
        assert (account.streams, account.consumers, account.limits.max_storage) == (1, 2, -1)
        js.delete_consumer("lamps", "a", timeout=SOON)
        with pytest.raises(ConsumerMissing):
            js.consumer("lamps", "a")
        assert js.ask("STREAM.NAMES", {}, timeout=SOON)["streams"] == ["lamps"]
        assert js.purge_stream("lamps", subject="lamps.hall", timeout=SOON) == 1
        js.delete_stream("lamps", timeout=SOON)
        with pytest.raises(StreamMissing):
            js.stream("lamps")


def test_another_domain(server: NatsServer) -> None:
    with sync.connect(server.url) as client:
        js = client.jetstream(domain="hub")
        assert js.prefix == "$JS.hub.API"
        with pytest.raises(NotEnabled):
            js.streams()
