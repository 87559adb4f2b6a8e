# ruff: noqa: PT012 - how a block ends is the matter here
"""Services, with real servers of two versions."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.nats.client.scripted import Told
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import Client, connect
from trunkline.nats.client.services import Endpoint, ServiceRequest, service_error_of
from trunkline.nats.errors import BadService, BadSubject, ClientClosed, NatsError, NoResponders, ServiceError


async def double(request: ServiceRequest) -> None:
    await trio.lowlevel.checkpoint()
    request.respond(request.payload * 2)


async def said(client: Client, subject: str) -> list[dict[str, Any]]:
    async with client.request_many(subject, stall=0.3, timeout=60) as answers:
        return [json.loads(answer.payload) async for answer in answers]


async def test_endpoints_and_what_is_said_of_them(server: NatsServer) -> None:
    async with (
        connect(server.url) as asker,
        connect(server.url) as client,
        client.service("math", "1.2.0-rc.1", description="numbers", metadata={"region": "north"}) as service,
    ):
        service.add_endpoint("double", double, metadata={"format": "text"})
        group = service.add_group("math.v1", queue="many")
        group.add_endpoint("twice", double)
        group.add_group("any").add_endpoint("wide", double, subject="*", queue="")
        await client.flush()
        assert (await asker.request("double", b"ab")).payload == b"abab"
        assert (await asker.request("math.v1.twice", b"1")).payload == b"11"
        assert (await asker.request("math.v1.any.thing", b"2")).payload == b"22"
        standard = {
            "name": "math",
            "id": service.id,
            "version": "1.2.0-rc.1",
            "metadata": {"region": "north"},
        }
        for end in ("", ".math", f".math.{service.id}"):
            assert await said(asker, f"$SRV.PING{end}") == [standard | {"type": "io.nats.micro.v1.ping_response"}]
            (info,) = await said(asker, f"$SRV.INFO{end}")
            (stats,) = await said(asker, f"$SRV.STATS{end}")
            assert info == service.info()
            assert stats == service.stats()
        assert info["description"] == "numbers"
        assert info["endpoints"] == [
            {"name": "double", "subject": "double", "queue_group": "q", "metadata": {"format": "text"}},
            {"name": "twice", "subject": "math.v1.twice", "queue_group": "many", "metadata": {}},
            {"name": "wide", "subject": "math.v1.any.*", "queue_group": "", "metadata": {}},
        ]
        assert [each["num_requests"] for each in stats["endpoints"]] == [1, 1, 1]
        assert stats["started"].endswith("Z")
        assert stats["endpoints"][0]["data"] is None
        service.reset()
        assert service.stats()["endpoints"][0]["num_requests"] == 0
        with pytest.raises(NoResponders):
            await asker.request("$SRV.PING.other")


async def test_errors_are_answered_and_counted_and_the_service_goes_on(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: ServiceRequest) -> None:
        await trio.lowlevel.checkpoint()
        if request.payload == b"answered":
            request.respond_error(404, "no such thing", b"{}")
        elif request.payload == b"raised":
            raise ServiceError(409, "not now")
        elif request.payload == b"failed":
            raise KeyError("a secret")
        elif request.payload == b"grouped":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise ValueError("a secret")
        else:
            request.respond(b"fine")

    async with connect(server.url) as client, client.service("s", "1.0.0") as service:
        service.add_endpoint("e", handle)
        for payload, code, text in (
            (b"answered", 404, "no such thing"),
            (b"raised", 409, "not now"),
            (b"failed", 500, "internal error"),
            (b"grouped", 500, "internal error"),
        ):
            answer = await client.request("e", payload)
            found = service_error_of(answer)
            assert found is not None
            assert (found.code, found.text) == (code, text)
            assert b"secret" not in answer.payload
            assert service.stats()["endpoints"][0]["last_error"] == f"{code}:{text}"
        assert "a secret" in caplog.text
        assert (await client.request("e")).payload == b"fine"
        # nobody waits for the answer to this one
        await client.publish("e", b"raised")
        while service.stats()["endpoints"][0]["num_errors"] < 5:
            await client.flush()
        (stats,) = service.stats()["endpoints"]
        assert (stats["num_requests"], stats["num_errors"], stats["last_error"]) == (6, 5, "409:not now")


async def test_an_error_that_cannot_be_answered_is_logged(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(request: ServiceRequest) -> None:
        await trio.lowlevel.checkpoint()
        raise ServiceError(400, "x" * 2_000_000)

    async with connect(server.url) as client, client.service("s", "1.0.0") as service:
        service.add_endpoint("e", handle, max_concurrent=1)
        await client.publish("e", reply="r")
        while not service.stats()["endpoints"][0]["num_errors"]:
            await client.flush()
    assert "cannot be answered: a message of 20000" in caplog.text


async def test_so_many_requests_are_handled_at_a_time(server: NatsServer) -> None:
    running_now, most = 0, 0
    go_on = trio.Event()

    async def handle(request: ServiceRequest) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await go_on.wait()
        running_now -= 1
        request.respond()

    async with connect(server.url) as client, client.service("s", "1.0.0", max_concurrent=3) as service:
        service.add_endpoint("e", handle)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.request, "e")
            while running_now < 3:
                await client.flush()
            await client.flush()
            go_on.set()
    assert most == 3


async def test_instances_share_requests_and_one_stops_without_losing_any(server: NatsServer) -> None:
    async def slow(request: ServiceRequest) -> None:
        await one.flush()
        request.respond(request.payload)

    found: list[bytes] = []

    async def ask(client: Client, first: int) -> None:
        for number in range(first, first + 100):
            found.append((await client.request("work", b"%d" % number, timeout=60)).payload)

    async with (
        connect(server.url) as asker,
        connect(server.url) as one,
        connect(server.url) as two,
        one.service("worker", "1.0.0") as first,
        two.service("worker", "1.0.0") as second,
    ):
        first.add_endpoint("work", slow)
        second.add_endpoint("work", slow, max_concurrent=1)
        await one.flush()
        await two.flush()
        assert {each["id"] for each in await said(asker, "$SRV.PING.worker")} == {first.id, second.id}
        async with trio.open_nursery() as nursery:
            for task in range(5):
                nursery.start_soon(ask, asker, 100 * task)
            while not second.stats()["endpoints"][0]["num_requests"]:
                await asker.flush()
            await second.stop()
            assert [each["id"] for each in await said(asker, "$SRV.PING.worker")] == [first.id]
        counts = [each.stats()["endpoints"][0]["num_requests"] for each in (first, second)]
    assert sorted(map(int, found)) == list(range(500))
    assert sum(counts) == 500
    assert 0 < counts[1] < 500


async def test_a_block_that_ends_handles_what_has_come(server: NatsServer) -> None:
    async with connect(server.url) as client, connect(server.url) as asker:
        with asker.subscribe("replies") as replies:
            await asker.flush()
            async with client.service("s", "1.0.0", max_concurrent=1) as service:
                service.add_endpoint("e", double)
                await client.flush()
                for number in range(50):
                    await asker.publish("e", b"%d" % number, reply="replies")
                await asker.flush()
            found = [(await replies.receive()).payload for _ in range(50)]
        assert found == [b"%d%d" % (number, number) for number in range(50)]
        with pytest.raises(NoResponders):
            await asker.request("e")
        with pytest.raises(NatsError, match="the service s has stopped"):
            service.add_endpoint("f", double)


async def test_who_waits_for_its_end(server: NatsServer) -> None:
    async with connect(server.url) as client:
        for endpoints in (0, 1):
            async with client.service("s", "1.0.0") as service, trio.open_nursery() as nursery:
                if endpoints:
                    service.add_endpoint("e", double)
                nursery.start_soon(service.stopped)
                await service.stop()
                await service.stop()
        async with client.service("s", "1.0.0") as service:
            service.add_endpoint("e", double)
            await client.drain()
            await service.stopped()


async def test_a_block_that_fails_cancels_its_handlers(server: NatsServer) -> None:
    cancelled = 0

    async def stuck(request: ServiceRequest) -> None:
        nonlocal cancelled
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled += 1

    async with connect(server.url) as client:
        started = trio.Event()
        with pytest.raises(KeyError, match="mine"):
            async with client.service("s", "1.0.0") as service:
                service.add_endpoint("e", stuck)
                await client.publish("e")
                await started.wait()
                raise KeyError("mine")
        started = trio.Event()
        with trio.CancelScope() as scope:
            async with client.service("s", "1.0.0") as service:
                service.add_endpoint("e", stuck)
                await client.publish("e")
                await started.wait()
                scope.cancel()
        assert scope.cancelled_caught
        started = trio.Event()
        async with client.service("s", "1.0.0") as service:
            service.add_endpoint("e", stuck)
            await client.publish("e")
            await started.wait()
            with trio.move_on_after(0.01):
                await service.stop()
            service_scope = trio.CancelScope(deadline=trio.current_time() + 0.01)
            with service_scope:
                await service.stopped()
            assert service_scope.cancelled_caught
            service._nursery.cancel_scope.cancel()
        assert cancelled == 3
        with pytest.raises(NoResponders):
            await client.request("$SRV.PING")


async def test_a_client_that_gives_up_ends_the_block(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        told = Told()
        with pytest.raises(NatsError):
            async with (
                connect(server.url, max_reconnects=0, on_event=told) as client,
                client.service("s", "1.0.0") as service,
            ):
                service.add_endpoint("e", double)
                await client.flush()
                server.kill()
                await trio.sleep_forever()


async def test_a_lost_connection_is_made_again_and_the_service_with_it(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        told = Told()
        async with (
            connect(server.url, reconnect_wait=0.01, on_event=told) as client,
            client.service("s", "1.0.0") as service,
        ):
            service.add_endpoint("e", double)
            await client.flush()
            server.kill()
            server.start()
            await told.wait(2)
            assert (await client.request("e", b"1")).payload == b"11"
            assert (await said(client, "$SRV.PING.s"))[0]["id"] == service.id


async def test_data_of_its_own(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    def data(endpoint: Endpoint) -> Any:
        return {"long": endpoint.description.name * 2} if endpoint.description.name == "a" else object()

    async with (
        connect(server.url) as client,
        client.service("s", "1.0.0", stats_handler=data, prefix="ops.SRV") as service,
    ):
        service.add_endpoint("a", double)
        service.add_endpoint("b", double)
        (stats,) = await said(client, "ops.SRV.STATS.s")
        assert stats["endpoints"][0]["data"] == {"long": "aa"}
        assert stats["endpoints"][1]["data"] is None
        assert "stats_handler of the service s has failed" in caplog.text
        await client.publish("ops.SRV.PING")
        await said(client, "ops.SRV.PING")
        assert "cannot answer ops.SRV.PING: the message" in caplog.text


async def test_a_group_whose_name_is_empty(server: NatsServer) -> None:
    """Its endpoints have a queue group in common, and their own subjects."""
    async with connect(server.url) as client, client.service("s", "1.0.0") as service:
        plain = service.add_group("", queue="g")
        plain.add_endpoint("a", double)
        plain.add_group("b").add_group("").add_endpoint("c", double)
        found = [(each["subject"], each["queue_group"]) for each in service.info()["endpoints"]]
        assert found == [("a", "g"), ("b.c", "g")]
        await client.flush()
        assert (await client.request("a", b"2")).payload == (await client.request("b.c", b"2")).payload == b"22"


async def test_what_cannot_be(server: NatsServer) -> None:
    async with connect(server.url) as client:
        for name, version, options, error in (
            ("a b", "1.0.0", {}, BadService),
            ("a", "1.0", {}, BadService),
            ("a", "1.0.0", {"metadata": {"a": 1}}, BadService),
            ("a", "1.0.0", {"queue": "a b"}, BadSubject),
            ("a", "1.0.0", {"prefix": "$SRV.*"}, BadSubject),
            ("a", "1.0.0", {"max_concurrent": 0}, ValueError),
            ("a", "1.0.0", {"colour": "red"}, TypeError),
        ):
            with pytest.raises(error):
                client.service(name, version, **options)  # type: ignore[arg-type]
        async with client.service("s", "1.0.0") as service:
            with pytest.raises(BadService):
                service.add_endpoint("a.b", double)
            with pytest.raises(BadSubject):
                service.add_endpoint("a", double, subject="a..b")
            with pytest.raises(BadSubject):
                service.add_endpoint("a", double, queue="a b")
            with pytest.raises(ValueError, match="max_concurrent"):
                service.add_endpoint("a", double, max_concurrent=0)
            with pytest.raises(BadService):
                service.add_group("a.>")
            assert service.info()["endpoints"] == []
    with pytest.raises(ClientClosed):
        async with client.service("s", "1.0.0"):
            raise AssertionError
