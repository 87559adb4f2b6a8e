"""What every way of connections to another shard promises."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.shards.passage_ends import Client, ends
from tests.broker.shards.some_shards import WAYS, descriptors, until
from trunkline.broker.net.passed import MAX_FIRST
from trunkline.broker.shards.passages import MAX_WAITING

pytestmark = pytest.mark.parametrize("way", WAYS)


async def test_a_connection_comes_with_all_that_is_known_of_it(way: str) -> None:
    async with ends(way) as both:
        client = Client(bytes(MAX_FIRST), listener="ä" * 100, relayed=True)
        client.sock.send(b"behind")
        assert both.passage.hand_over(client.passed)
        assert both.taken == [], "it is taken by the other shard's turn"
        await both.has_taken(1)
        (taken,) = both.taken
        about = client.passed
        assert (taken.listener, taken.peer, taken.identity, taken.first, taken.relayed) == (
            about.listener,
            about.peer,
            about.identity,
            about.first,
            about.relayed,
        )
        taken.sock.setblocking(False)
        assert taken.sock.recv(100) == b"behind"
        taken.sock.send(b"answer")
        assert client.sock.recv(100) == b"answer"
        taken.close()
        assert client.sock.recv(100) == b"", "nobody else has its descriptor"
        client.close()


async def test_connections_come_in_order_each_with_its_own_bytes(way: str) -> None:
    async with ends(way) as both:
        clients = [Client(b"%d" % number * (1 + number % 7 * 1000)) for number in range(200)]
        for client in clients:
            assert both.passage.hand_over(client.passed)
        await both.has_taken(200)
        assert [taken.first for taken in both.taken] == [client.passed.first for client in clients]
        for number, (taken, client) in enumerate(zip(both.taken, clients, strict=True)):
            taken.sock.send(b"%d" % number)
            assert client.sock.recv(100) == b"%d" % number
            client.close()


async def test_what_is_too_much_stays_with_the_caller(way: str) -> None:
    async with ends(way) as both:
        before = descriptors()
        clients: list[Client] = []
        while True:  # nothing is taken meanwhile: this is one turn
            client = Client(bytes(MAX_FIRST))
            clients.append(client)
            if not both.passage.hand_over(client.passed):
                break
        assert MAX_WAITING < len(clients) + (way == "memory") <= 2 * MAX_WAITING
        clients.pop().passed.refuse()
        assert client.has(b"refused")
        client.close()
        await both.has_taken(len(clients))
        last = Client()
        assert both.passage.hand_over(last.passed), "there is room again"
        await both.has_taken(len(clients) + 1)
        for each in (*clients, last):
            each.close()
        for taken in both.taken:
            taken.close()
        assert descriptors() <= before + 2  # those of the passage


async def test_who_waits_for_a_shard_that_ends_is_refused(way: str) -> None:
    async with ends(way) as both:
        clients = [Client(bytes(MAX_FIRST)) for _ in range(MAX_WAITING)]
        for client in clients:
            assert both.passage.hand_over(client.passed)
        both.end_the_other()
        await until(lambda: all(client.has(b"refused") or client.has(b"") for client in clients))
        assert both.taken == []
        late = Client()
        assert both.passage.hand_over(late.passed) is (way == "sockets"), "another process may come back"
        both.passage.close()
        late.passed.close()
        for client in (*clients, late):
            client.close()


async def test_a_closed_passage_takes_nobody(way: str) -> None:
    async with ends(way) as both:
        client, late = Client(), Client()
        if way == "memory":
            assert both.passage.hand_over(client.passed)
        both.passage.close()
        assert (way == "sockets") or client.has(b"refused")
        assert not both.passage.hand_over(late.passed)
        await wait_all_tasks_blocked()
        assert both.taken == []
        for each in (client, late):
            each.passed.close()
            each.close()


async def test_clients_that_are_gone_are_passed_all_the_same(way: str) -> None:
    async with ends(way) as both:
        for _ in range(10):
            client = Client()
            assert both.passage.hand_over(client.passed)
            client.close()
        await both.has_taken(10)
        for taken in both.taken:
            assert taken.first == b"CONNECT"
            assert taken.sock.recv(1) == b""


async def test_ten_thousand_connections_leak_no_descriptor(way: str) -> None:
    async with ends(way) as both:
        taken = 0

        def take(passed: Any) -> None:
            nonlocal taken
            taken += 1
            passed.close()

        both.take = take
        warm = Client()
        assert both.passage.hand_over(warm.passed)
        warm.close()
        await until(lambda: taken == 1)
        before = descriptors()
        for _ in range(100):
            clients = [Client() for _ in range(100)]
            for client in clients:
                assert both.passage.hand_over(client.passed)
            for client in clients:
                client.close()
            wanted = taken - taken % 100 + 101
            await until(lambda wanted=wanted: taken >= wanted)  # type: ignore[misc]
        assert taken == 10_001
        await trio.lowlevel.checkpoint()
        assert descriptors() == before
