"""What an account has and may have, as servers say it."""

from pathlib import Path

import pytest

from tests.nats.operator_mode import Operator, Signer, user_jwt, write_credentials
from tests.nats.servers import BROKER, KINDS, NatsServer, running
from trunkline.broker.nats.levels import LEVEL
from trunkline.nats import connect
from trunkline.nats.jetstream.accounts import AccountInfo, AccountLimits, ApiUsage, Usage
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, Storage, StreamConfig
from trunkline.nats.jetstream.fields import BadReply, from_json, to_json
from trunkline.nats.jetstream.replies import ApiError, NotEnabled, StreamMissing

_ACCOUNTS = """
jetstream {{ store_dir: "{folder}", domain: hub }}
accounts {{
  HOUSE {{
    users: [{{user: ada, password: secret}}]
    jetstream: {{
      max_mem: 1MB, max_file: 2MB, max_streams: 5, max_consumers: 7, max_ack_pending: 100, max_bytes_required: true
    }}
  }}
  NONE {{ users: [{{user: bob, password: secret}}] }}
}}
"""


async def test_what_an_account_has(server: NatsServer) -> None:
    async with connect(server.url) as client:
        js = client.jetstream()
        before = await js.account_info()
        assert (before.streams, before.consumers, before.storage, before.memory) == (0, 0, 0, 0)
        await js.create_stream(StreamConfig(name="lamps", subjects=("lamps.*",), max_bytes=10_000))
        await js.create_stream(StreamConfig(name="lights", subjects=("lights",), max_bytes=500, storage=Storage.MEMORY))
        await js.create_stream(StreamConfig(name="doors", subjects=("doors",)))
        await js.publish("lamps.hall", bytes(100))
        await js.publish("lights", bytes(200))
        await js.create_consumer("lamps", ConsumerConfig(durable="all", ack_policy=AckPolicy.EXPLICIT))
        with pytest.raises(StreamMissing):
            await js.stream("stairs")
        found = await js.account_info()
        assert (found.streams, found.consumers) == (3, 1)
        assert 100 < found.storage < 200 < found.memory < 300
        reserved = (0, 0) if server.kind == "old" else (500, 10_000)
        assert (found.reserved_memory, found.reserved_storage) == reserved
        assert (found.limits.max_memory, found.limits.max_storage) == (-1, -1)
        most = 1000 if server.kind == BROKER else -1
        assert (found.limits.max_streams, found.limits.max_consumers, found.limits.max_ack_pending) == (most, most, -1)
        assert not found.limits.max_bytes_required
        assert (found.domain, found.tiers) == ("", {})
        # the creation of a durable consumer looks whether it is there
        assert (found.api.total - before.api.total, found.api.errors - before.api.errors) == (7, 2)
        assert (set(found.unknown), found.limits.unknown, found.api.unknown) == ({"type"}, {}, {})
        assert found.api.level >= {"old": 0, "new": 3, BROKER: LEVEL}[server.kind]
        for name in ("lamps", "lights", "doors"):
            await js.delete_stream(name)


@pytest.mark.parametrize("kind", KINDS)
async def test_limits_of_an_account(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(_ACCOUNTS.format(folder=tmp_path / "js"))
    with running(kind, tmp_path, "-c", str(file)) as server:
        async with connect(server.url, user="ada", password="secret") as client:
            js = client.jetstream()
            with pytest.raises(ApiError, match="requires a stream config to have max bytes set"):
                await js.create_stream(StreamConfig(name="lamps"))
            found = await js.account_info()
            assert found.domain == "hub"
            assert found.limits == AccountLimits(
                max_memory=1 << 20,
                max_storage=2 << 20,
                max_streams=5,
                max_consumers=7,
                max_ack_pending=100,
                max_bytes_required=True,
            )
        async with connect(server.url, user="bob", password="secret") as client:
            with pytest.raises(NotEnabled):
                await client.jetstream().account_info()


@pytest.mark.parametrize("kind", KINDS)
async def test_tiers(kind: str, tmp_path: Path) -> None:
    operator, account, user = Operator(), Signer("account"), Signer("user")
    tier = {"mem_storage": 1000, "disk_storage": 2000, "streams": 3, "consumer": 4}
    operator.publish(account, tiers={"R1": tier, "R3": tier | {"streams": 9}})
    credentials = write_credentials(tmp_path / "user.creds", user_jwt(account, user), user)
    options = ("-c", str(operator.write(tmp_path)), "-js", "-sd", str(tmp_path / "js"))
    with running(kind, tmp_path, *options) as server:
        async with connect(server.url, credentials=credentials) as client:
            js = client.jetstream()
            await js.create_stream(StreamConfig(name="lamps", subjects=("lamps",), max_bytes=300))
            await js.publish("lamps", bytes(50))
            found = await js.account_info()
            assert found.streams == 1
            assert (found.limits.max_memory, found.limits.max_streams) == (0, 0)
            assert set(found.tiers) == {"R1", "R3"}
            first = found.tiers["R1"]
            assert (first.streams, first.consumers, first.storage) == (1, 0, found.storage)
            assert 50 < first.storage < 100
            limits = first.limits
            assert (limits.max_memory, limits.max_storage) == (1000, 2000)
            assert (limits.max_streams, limits.max_consumers, limits.max_ack_pending) == (3, 4, -1)
            second = found.tiers["R3"]
            assert (second.streams, second.storage, second.limits.max_streams) == (0, 0, 9)


def test_what_newer_servers_say_is_kept() -> None:
    said = {
        "streams": 1,
        "limits": {"max_streams": 5, "new": 1},
        "api": {"level": 9, "total": 7, "inflight": 2, "new": 2},
        "tiers": {"R3": {"storage": 5, "limits": {}, "new": 3}},
        "new": 4,
    }
    found = from_json(AccountInfo, said)
    assert found == AccountInfo(
        streams=1,
        limits=AccountLimits(max_streams=5, unknown={"new": 1}),
        api=ApiUsage(level=9, total=7, inflight=2, unknown={"new": 2}),
        tiers={"R3": Usage(storage=5, limits=AccountLimits(), unknown={"new": 3})},
        unknown={"new": 4},
    )
    assert to_json(found) == said


@pytest.mark.parametrize(
    "said",
    [
        {"limits": {}},
        {"api": {}},
        {"limits": {}, "api": {}, "streams": "1"},
        {"limits": {}, "api": {}, "tiers": []},
        {"limits": {}, "api": {}, "tiers": {"R1": 1}},
        {"limits": {}, "api": {}, "tiers": {"R1": {}}},
    ],
)
def test_what_is_no_account(said: object) -> None:
    with pytest.raises(BadReply):
        from_json(AccountInfo, said)
