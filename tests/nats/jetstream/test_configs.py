"""Configurations, as real servers give them back."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.nats.servers import NatsServer
from trunkline.nats import Client, connect
from trunkline.nats.jetstream.configs import (
    AckPolicy,
    Compression,
    ConsumerConfig,
    ConsumerLimits,
    DeliverPolicy,
    Discard,
    External,
    PersistMode,
    Placement,
    ReplayPolicy,
    Republish,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from trunkline.nats.jetstream.fields import from_json, to_json
from trunkline.nats.jetstream.replies import (
    ConsumerInfo,
    ConsumerMissing,
    NameTaken,
    PublishAck,
    StreamInfo,
    StreamMissing,
    WrongLast,
    parse,
    publish_ack_of,
)


async def api(client: Client, what: str, body: object = None) -> dict[str, Any]:
    found = await client.request(f"$JS.API.{what}", b"" if body is None else json.dumps(body).encode())
    return parse(found.payload)


async def created(client: Client, config: StreamConfig) -> StreamInfo:
    try:
        return from_json(StreamInfo, await api(client, f"STREAM.CREATE.{config.name}", to_json(config)))
    finally:
        await api(client, f"STREAM.DELETE.{config.name}")


#: Of servers of any age.
STREAMS = [
    StreamConfig(name="plain", subjects=("plain.>",)),
    StreamConfig(
        name="full",
        subjects=("full.a", "full.b.*"),
        description="with all of it",
        retention=Retention.INTEREST,
        discard=Discard.NEW,
        storage=Storage.MEMORY,
        max_consumers=5,
        max_messages=100,
        max_bytes=100_000,
        max_age=3600.5,
        max_messages_per_subject=3,
        max_message_size=1000,
        discard_new_per_subject=True,
        duplicate_window=1.5,
        no_ack=True,
        deny_delete=True,
        deny_purge=True,
        allow_direct=True,
        republish=Republish(source="full.a", destination="again", headers_only=True),
    ),
    StreamConfig(name="rollup", subjects=("rollup",), retention=Retention.WORK_QUEUE, allow_rollup=True),
    StreamConfig(name="mirror", mirror=StreamSource(name="other", start_sequence=7), mirror_direct=True),
    StreamConfig(
        name="sourced",
        sources=(
            StreamSource(name="one", filter_subject="a.>", start_time=1_700_000_000.5),
            StreamSource(name="two", external=External(api="$JS.hub.API", deliver="from.hub")),
        ),
    ),
]
#: Of newer ones.
NEW_STREAMS = [
    StreamConfig(
        name="new",
        subjects=("new.>",),
        compression=Compression.S2,
        first_sequence=1000,
        transform=SubjectTransform(source="new.>", destination="newer.>"),
        consumer_limits=ConsumerLimits(inactive_threshold=60.0, max_ack_pending=10),
        allow_message_ttl=True,
        allow_rollup=True,
        delete_marker_ttl=2.0,
        allow_atomic=True,
        allow_batched=True,
        metadata={"owner": "me"},
    ),
    StreamConfig(name="quick", subjects=("quick",), persist_mode=PersistMode.ASYNC),
    StreamConfig(name="counted", subjects=("counted",), allow_counter=True),
    StreamConfig(name="scheduled", subjects=("scheduled.>",), allow_schedules=True),
]


def like(wanted: StreamConfig, found: StreamConfig) -> StreamConfig:
    """What was asked for, with what a server adds to it."""
    window = wanted.duplicate_window or found.duplicate_window
    own = {name: text for name, text in found.metadata.items() if name.startswith("_nats.")}
    return replace(wanted, duplicate_window=window, metadata={**wanted.metadata, **own}, unknown=found.unknown)


@pytest.mark.parametrize("config", STREAMS, ids=lambda config: config.name)
async def test_streams(config: StreamConfig, server: NatsServer) -> None:
    async with connect(server.url) as client:
        info = await created(client, config)
    expected = like(config, info.config)
    if not config.mirror_direct:
        expected = replace(expected, allow_direct=info.config.allow_direct)
    assert info.config == expected
    assert info.created is not None
    assert (info.state.messages, info.state.consumers) == (0, 0)
    assert from_json(StreamConfig, to_json(info.config)) == info.config


@pytest.mark.parametrize("config", NEW_STREAMS, ids=lambda config: config.name)
async def test_streams_of_newer_servers(config: StreamConfig, server: NatsServer) -> None:
    async with connect(server.url) as client:
        if int(client.server["version"].split(".")[1]) < 12:
            pytest.skip("an older server ignores what it does not know")
        info = await created(client, config)
    expected = like(config, info.config)
    expected = replace(expected, allow_rollup=info.config.allow_rollup, deny_purge=info.config.deny_purge)
    assert info.config == replace(expected, allow_direct=info.config.allow_direct)


async def test_what_is_not_known_goes_back(server: NatsServer) -> None:
    config = from_json(StreamConfig, {**to_json(StreamConfig(name="s")), "later": {"x": 1}})
    assert config.unknown == {"later": {"x": 1}}
    assert to_json(config)["later"] == {"x": 1}


CONSUMERS = [
    ConsumerConfig(durable="plain"),
    ConsumerConfig(
        durable="pull",
        description="with all of it",
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        start_sequence=2,
        ack_wait=2.5,
        max_deliver=4,
        backoff=(0.5, 1.0),
        filter_subject="c.a",
        sample_frequency="100",
        max_waiting=7,
        max_ack_pending=9,
        headers_only=True,
        max_batch=50,
        max_expires=3.0,
        max_pull_bytes=1000,
        inactive_threshold=30.0,
        memory_storage=True,
        replicas=1,
    ),
    ConsumerConfig(
        durable="push",
        deliver_subject="here",
        deliver_group="g",
        deliver_policy=DeliverPolicy.BY_START_TIME,
        start_time=1_700_000_000.0,
        ack_policy=AckPolicy.NONE,
        replay_policy=ReplayPolicy.ORIGINAL,
        rate_limit=8000,
    ),
    ConsumerConfig(durable="flow", deliver_subject="here", flow_control=True, idle_heartbeat=1.0),
]


@pytest.mark.parametrize("config", CONSUMERS, ids=lambda config: config.durable)
async def test_consumers(config: ConsumerConfig, server: NatsServer) -> None:
    async with connect(server.url) as client:
        await api(client, "STREAM.CREATE.C", to_json(StreamConfig(name="C", subjects=("c.>",))))
        try:
            body = {"stream_name": "C", "config": to_json(config)}
            info = from_json(ConsumerInfo, await api(client, f"CONSUMER.DURABLE.CREATE.C.{config.durable}", body))
        finally:
            await api(client, "STREAM.DELETE.C")
    found = info.config
    own = {name: text for name, text in found.metadata.items() if name.startswith("_nats.")}
    expected = replace(
        config,
        name=found.name,
        metadata=own,
        # what a server has where nothing is said
        ack_wait=config.backoff[0] if config.backoff else config.ack_wait or found.ack_wait,
        max_deliver=config.max_deliver or found.max_deliver,
        max_ack_pending=config.max_ack_pending or found.max_ack_pending,
        max_waiting=config.max_waiting or found.max_waiting,
        unknown=found.unknown,
    )
    assert found == expected
    assert (info.stream, info.name, info.pending, info.push_bound) == ("C", config.durable, 0, False)
    assert (info.delivered.consumer, info.ack_floor.stream) == (
        0,
        0 if config.durable != "pull" else info.ack_floor.stream,
    )


async def test_errors_and_acknowledgements(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with pytest.raises(StreamMissing, match=r"stream not found \(10059\)"):
            await api(client, "STREAM.INFO.none")
        await api(client, "STREAM.CREATE.E", to_json(StreamConfig(name="E", subjects=("e",))))
        try:
            with pytest.raises(NameTaken):
                await api(client, "STREAM.CREATE.E", to_json(StreamConfig(name="E", subjects=("f",))))
            with pytest.raises(ConsumerMissing):
                await api(client, "CONSUMER.INFO.E.none")
            sent = await client.request("e", b"x", headers={"Nats-Msg-Id": "1"})
            assert publish_ack_of(sent.payload) == PublishAck(stream="E", sequence=1)
            again = await client.request("e", b"x", headers={"Nats-Msg-Id": "1"})
            assert publish_ack_of(again.payload) == PublishAck(stream="E", sequence=1, duplicate=True)
            late = await client.request("e", b"x", headers={"Nats-Expected-Last-Sequence": "7"})
            with pytest.raises(WrongLast, match="wrong last sequence: 1"):
                publish_ack_of(late.payload)
            info = from_json(StreamInfo, await api(client, "STREAM.INFO.E"))
            assert (info.state.messages, info.state.last_sequence) == (1, 1)
            assert info.state.last_time == info.state.first_time is not None
        finally:
            await api(client, "STREAM.DELETE.E")


def test_placement() -> None:
    config = StreamConfig(name="s", placement=Placement(cluster="c", tags=("a", "b")))
    assert to_json(config)["placement"] == {"cluster": "c", "tags": ["a", "b"]}
    assert from_json(StreamConfig, to_json(config)) == config
