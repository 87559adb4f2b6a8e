"""`trunkline.router.shared`: who of a group gets a message."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.subscribers import Client
from trunkline.router import Group, Options, Router, ShareStrategy
from trunkline.router.shared import make_group

every_strategy = pytest.mark.parametrize("strategy", list(ShareStrategy))


def group_of(strategy: ShareStrategy, count: int) -> tuple[Group[Client], list[Client]]:
    group: Group[Client] = make_group(strategy, "g", "a", Random(1))
    clients = [Client(f"c{number}") for number in range(count)]
    for client in clients:
        assert group.join(client, Options())
    return group, clients


def picks(group: Group[Client], count: int, exclude: tuple[Client, ...] = ()) -> list[str]:
    """Picks for as many publishers and topics."""
    found: list[str] = []
    for number in range(count):
        target = group.pick(f"publisher{number}", f"topic/{number}", exclude)
        assert target is not None
        found.append(target.subscriber.client_id)
    return found


def test_round_robin_goes_in_order_of_subscription() -> None:
    group, clients = group_of(ShareStrategy.ROUND_ROBIN, 3)
    assert picks(group, 7) == ["c0", "c1", "c2", "c0", "c1", "c2", "c0"]
    clients[1].online = False
    assert picks(group, 3) == ["c2", "c0", "c2"]
    clients[1].online = True
    group.join(Client("new"), Options())
    assert picks(group, 5) == ["new", "c0", "c1", "c2", "new"]


@pytest.mark.parametrize("count", [5, 40])
def test_round_robin_misses_nobody_when_one_leaves(count: int) -> None:
    group, clients = group_of(ShareStrategy.ROUND_ROBIN, count)
    picks(group, 3)
    # One that was served, and the one whose turn it is.
    group.leave(clients[1])
    group.leave(clients[3])
    left = [f"c{number}" for number in range(count) if number not in (1, 3)]
    assert picks(group, count - 2) == left[2:] + left[:2]


def test_round_robin_keeps_its_place_while_most_leave() -> None:
    group, clients = group_of(ShareStrategy.ROUND_ROBIN, 100)
    picks(group, 80)
    for number in range(100):
        if number % 10:
            group.leave(clients[number])
    assert len(group) == 10
    assert picks(group, 4) == ["c80", "c90", "c0", "c10"]


def test_filters_of_one_group_take_turns_apart() -> None:
    router: Router[Client] = Router()
    for number in range(2):
        client = Client(f"c{number}")
        router.subscribe(client, "$share/g/a", Options())
        router.subscribe(client, "$share/g/b", Options())
        router.subscribe(client, "$share/h/a", Options())
    seen = [
        target.subscriber.client_id
        for topic in ("a", "b", "a")
        for group in router.match(topic).groups
        if (target := group.pick("p", topic)) is not None
    ]
    assert seen == ["c0", "c0", "c0", "c1", "c1"]


def test_random_is_even() -> None:
    group, clients = group_of(ShareStrategy.RANDOM, 10)
    counts = Counter(picks(group, 10_000))
    assert all(850 < counts[client.client_id] < 1150 for client in clients)


@pytest.mark.parametrize("online", [1, 3, 50])
def test_random_is_even_among_those_online(online: int) -> None:
    group, clients = group_of(ShareStrategy.RANDOM, 100)
    for client in clients[online:]:
        client.online = False
    counts = Counter(picks(group, 1000 * online))
    assert set(counts) == {client.client_id for client in clients[:online]}
    assert all(800 < count < 1200 for count in counts.values())


def test_random_can_be_repeated() -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        router: Router[Client] = Router(strategy="random", seed=7)
        for number in range(10):
            router.subscribe(Client(f"c{number}"), "$share/g/a", Options())
        seen.append(picks(router.match("a").groups[0], 100))
    assert seen[0] == seen[1]


def test_sticky_stays_while_it_is_online() -> None:
    group, clients = group_of(ShareStrategy.STICKY, 10)
    [first] = set(picks(group, 100))
    known = {client.client_id: client for client in clients}
    known[first].online = False
    [second] = set(picks(group, 100))
    assert second != first
    known[first].online = True
    assert set(picks(group, 100)) == {second}
    group.leave(known[second])
    [third] = set(picks(group, 100))
    assert third != second
    # With new options it is still the same member.
    assert not group.join(known[third], Options(qos=2))
    assert {(target.subscriber.client_id, target.qos) for _ in range(9) if (target := group.pick("p", "t"))} == {
        (third, 2)
    }


def test_sticky_groups_spread() -> None:
    router: Router[Client] = Router(strategy=ShareStrategy.STICKY, seed=3)
    clients = [Client(f"c{number}") for number in range(4)]
    for topic in range(200):
        for client in clients:
            router.subscribe(client, f"$share/g/{topic}", Options())
    counts = Counter(picks(router.match(str(topic)).groups[0], 1)[0] for topic in range(200))
    assert all(25 < counts[client.client_id] < 75 for client in clients)


def test_sticky_keeps_one_offline_session_when_nobody_is_online() -> None:
    group, clients = group_of(ShareStrategy.STICKY, 10)
    for client in clients:
        client.online = False
    assert len(set(picks(group, 100))) == 1
    clients[4].online = True
    assert set(picks(group, 100)) == {"c4"}


@pytest.mark.parametrize(
    ("strategy", "by_client"), [(ShareStrategy.HASH_CLIENT, True), (ShareStrategy.HASH_TOPIC, False)]
)
def test_hash_by_its_key(strategy: ShareStrategy, by_client: bool) -> None:
    group, clients = group_of(strategy, 10)
    for number in range(50):
        found = {
            target.subscriber.client_id
            for other in range(20)
            if (target := group.pick(*((f"k{number}", f"o{other}") if by_client else (f"o{other}", f"k{number}"))))
        }
        assert len(found) == 1
    counts = Counter(picks(group, 10_000))
    assert all(850 < counts[client.client_id] < 1150 for client in clients)


def test_a_hash_is_the_same_in_every_process() -> None:
    group, _ = group_of(ShareStrategy.HASH_TOPIC, 10)
    assert picks(group, 8) == ["c6", "c8", "c8", "c6", "c0", "c6", "c4", "c3"]


@pytest.mark.parametrize("count", [5, 20, 100])
def test_only_the_keys_of_a_lost_member_move(count: int) -> None:
    group, clients = group_of(ShareStrategy.HASH_TOPIC, count)
    before = picks(group, 2000)
    clients[2].online = False
    offline = picks(group, 2000)
    moved = {old for old, new in zip(before, offline, strict=True) if old != new}
    assert moved == {"c2"}
    assert len({new for old, new in zip(before, offline, strict=True) if old == "c2"}) > 2
    clients[2].online = True
    assert picks(group, 2000) == before


def test_a_new_member_takes_only_its_share() -> None:
    group, _ = group_of(ShareStrategy.HASH_TOPIC, 20)
    before = picks(group, 2000)
    group.join(Client("new"), Options())
    after = picks(group, 2000)
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"new"}
    assert 60 < after.count("new") < 140


def test_local_is_round_robin_on_one_node() -> None:
    router: Router[Client] = Router(strategy="local")
    for number in range(3):
        router.subscribe(Client(f"c{number}"), "$share/g/a", Options())
    assert picks(router.match("a").groups[0], 4) == ["c0", "c1", "c2", "c0"]


@every_strategy
@pytest.mark.parametrize("count", [1, 4, 50])
def test_an_offline_member_only_when_none_is_online(strategy: ShareStrategy, count: int) -> None:
    group, clients = group_of(strategy, count)
    for client in clients:
        client.online = False
    assert set(picks(group, 20)) <= {client.client_id for client in clients}
    clients[-1].online = True
    assert set(picks(group, 20)) == {clients[-1].client_id}


@every_strategy
def test_a_message_goes_to_another_member(strategy: ShareStrategy) -> None:
    group, clients = group_of(strategy, 3)
    first = group.pick("p", "t")
    assert first is not None
    second = group.pick("p", "t", (first.subscriber,))
    assert second is not None
    assert second.subscriber is not first.subscriber
    third = group.pick("p", "t", (first.subscriber, second.subscriber))
    assert third is not None
    assert {each.subscriber for each in (first, second, third)} == set(clients)
    assert group.pick("p", "t", clients) is None


@every_strategy
def test_an_empty_group_picks_nobody(strategy: ShareStrategy) -> None:
    group, [client] = group_of(strategy, 1)
    group.leave(client)
    assert group.pick("p", "t") is None


@every_strategy
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 25), st.sampled_from(["join", "leave", "online", "offline", "pick"])), max_size=150
    )
)
def test_members_come_and_go(strategy: ShareStrategy, steps: list[tuple[int, str]]) -> None:
    group, _ = group_of(strategy, 0)
    clients = [Client(f"c{number}") for number in range(26)]
    members: dict[Client, int] = {}
    for number, action in steps:
        client = clients[number]
        if action == "join":
            assert group.join(client, Options(qos=number % 3)) == (client not in members)
            members[client] = number % 3
        elif action == "leave":
            assert group.leave(client) == (members.pop(client, None) is not None)
        elif action == "pick":
            picked = group.pick(f"p{number}", f"t{number}")
            online = [member for member in members if member.online]
            assert (picked is None) == (not members)
            if picked is not None:
                assert picked.subscriber in (online or members)
        else:
            client.online = action == "online"
        assert len(group) == len(members)
    assert [member.subscriber for member in group] == list(members)
    for client in clients:
        member = group.member(client)
        assert (None if member is None else member.options.qos) == members.get(client)


def test_the_strategy_of_a_group_by_its_name() -> None:
    router: Router[Client] = Router(strategy="random", strategies={"orders": "hash_client"})
    router.subscribe(Client("c"), "$share/orders/a", Options())
    router.subscribe(Client("c"), "$share/other/a", Options())
    assert [(group.name, group.strategy) for group in router.match("a").groups] == [
        ("orders", ShareStrategy.HASH_CLIENT),
        ("other", ShareStrategy.RANDOM),
    ]


def test_an_unknown_strategy_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="least_loaded"):
        Router(strategies={"g": "least_loaded"})


def test_a_member_knows_its_group() -> None:
    group, [client] = group_of(ShareStrategy.RANDOM, 1)
    member = group.pick("p", "t")
    assert member is not None
    assert member.group is group
    assert member.subscriber is client
    assert repr(group) == "<Chance 'g' 'a' 1 members>"


def test_emqx_names_of_strategies() -> None:
    assert ShareStrategy("round_robin_per_group") is ShareStrategy.ROUND_ROBIN
    assert ShareStrategy("hash_clientid") is ShareStrategy.HASH_CLIENT
    with pytest.raises(ValueError, match="nonsense"):
        ShareStrategy("nonsense")
