from trunkline.nats.client.servers import MAX_SERVERS, ServerPool
from trunkline.nats.client.settings import Address

A, B, C = Address("a", 1), Address("b", 1), Address("c", 1)


def unchanged(_: list[Address]) -> None: ...


def test_the_last_one_is_tried_last() -> None:
    pool = ServerPool([A, B, C], unchanged)
    assert pool.round() == [A, B, C]
    pool.connected(A)
    assert pool.round() == [B, C, A]
    pool.connected(C)
    assert pool.round() == [A, B, C]


def test_others_are_shuffled() -> None:
    pool = ServerPool([A, B, C], list.reverse)
    pool.connected(C)
    assert pool.round() == [B, A, C]


def test_servers_are_learned_and_forgotten() -> None:
    via = Address("a", 1, is_encrypted=True, user="u", password="p")
    pool = ServerPool([via], unchanged)
    pool.connected(via)
    new = Address("b", 1, is_encrypted=True, user="u", password="p")
    assert pool.learn(["a:1", "b:1"], via) == [new]
    assert pool.learn(["a:1", "b:1"], via) == []
    assert pool.round() == [new, via]
    pool.connected(new)
    assert pool.learn(["c:1"], new) == [Address("c", 1, is_encrypted=True, user="u", password="p")]
    assert [each.host for each in pool.round()] == ["a", "c", "b"]
    pool.connected(pool.round()[1])
    pool.learn([], new)
    assert [each.host for each in pool.round()] == ["a", "c"]


def test_the_name_of_a_certificate() -> None:
    """Of servers that are told of by address, it is that of the server that has told."""
    via = Address("nats.example", 1, is_encrypted=True)
    pool = ServerPool([via], unchanged)
    first, second, named = pool.learn(["192.0.2.1:1", "[::1]:2", "other.example:3"], via)
    assert (first.tls_name, second.tls_name, named.tls_name) == ("nats.example", "nats.example", "")
    (third,) = pool.learn(["192.0.2.1:1", "192.0.2.3:1"], first)
    assert third.tls_name == "nats.example"


def test_nonsense_is_not_learned() -> None:
    pool = ServerPool([A], unchanged)
    assert pool.learn(None, A) == []
    assert pool.learn("b:1", A) == []
    assert pool.learn(["", 7, None, "b:x", "http://b", ["b:1"]], A) == [Address("7", 4222), Address("none", 4222)]
    assert len(pool.learn([f"h{number}:1" for number in range(2000)], A)) == MAX_SERVERS
    assert len(pool.round()) == MAX_SERVERS + 1
