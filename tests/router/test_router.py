"""`trunkline.router.router`: subscriptions to routes."""

import pytest

from tests.router.subscribers import Client, receivers
from trunkline.router import Options, Router


@pytest.fixture
def router() -> Router[Client]:
    return Router()


def test_routes_of_the_three_nodes() -> None:
    router: Router[Client] = Router()
    one, two, three = Client("node1"), Client("node2"), Client("node3")
    router.subscribe(one, "t/+/x", Options())
    router.subscribe(one, "t/+/y", Options())
    router.subscribe(two, "t/#", Options())
    router.subscribe(three, "t/a", Options())
    assert receivers(router, "t/a") == ["node2", "node3"]
    assert receivers(router, "t/b/x") == ["node1", "node2"]
    assert receivers(router, "u/b/x") == []


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", "/a", False),
        ("a", "a/", False),
        ("+", "a", True),
        ("+", "", True),
        ("+", "/", False),
        ("+/+", "/", True),
        ("/+", "/", True),
        ("/+", "/finance", True),
        ("+/", "a/", True),
        ("+/", "a", False),
        ("#", "a", True),
        ("#", "/", True),
        ("a/#", "a", True),
        ("a/#", "a/", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("a/+/#", "a", False),
        ("a/+/#", "a/", True),
        ("a/+/#", "a/b/c/d", True),
        ("a//b", "a//b", True),
        ("a/+/b", "a//b", True),
        pytest.param("#", "$SYS/x", False, id="MQTT-4.7.2-1 #"),
        pytest.param("+/x", "$SYS/x", False, id="MQTT-4.7.2-1 +"),
        ("$SYS/#", "$SYS/x", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/+", "$SYS/x", True),
        ("a/+", "a/$x", True),
        ("a/#", "a/$x", True),
    ],
)
def test_matching(router: Router[Client], filter: str, topic: str, expected: bool) -> None:
    assert router.subscribe(Client("c"), filter, Options())
    assert bool(router.match(topic)) is expected


def test_a_subscription_is_new_once(router: Router[Client]) -> None:
    client = Client("c")
    for filter in ("a/b", "a/+", "$share/g/a/+"):
        assert router.subscribe(client, filter, Options(qos=0))
        assert not router.subscribe(client, filter, Options(qos=2))
        assert router.subscription(client, filter) == Options(qos=2)
        assert router.unsubscribe(client, filter)
        assert not router.unsubscribe(client, filter)
        assert router.subscription(client, filter) is None


def test_a_replaced_subscription_routes_by_its_new_options(router: Router[Client]) -> None:
    client, other = Client("c"), Client("o")
    for filter in ("a/b", "a/+"):
        router.subscribe(client, filter, Options(qos=0))
        assert [target.qos for target in router.match("a/b").targets] == [0]
        router.subscribe(client, filter, Options(qos=1))
        assert [target.qos for target in router.match("a/b").targets] == [1]
        router.subscribe(other, filter, Options(qos=2))
        assert [target.qos for target in router.match("a/b").targets] == [1, 2]
        router.subscribe(client, filter, Options(qos=0))
        assert [target.qos for target in router.match("a/b").targets] == [0, 2]
        router.unsubscribe(client, filter)
        router.unsubscribe(other, filter)
        assert not router.match("a/b")


@pytest.mark.parametrize("others", [0, 3])
def test_overlapping_subscriptions_are_one_delivery(router: Router[Client], others: int) -> None:
    client = Client("c")
    router.subscribe(client, "a/#", Options(qos=0, identifier=7))
    router.subscribe(client, "a/b", Options(qos=2, identifier=3))
    router.subscribe(client, "+/b", Options(qos=1, retain_as_published=True))
    router.subscribe(client, "#", Options(qos=1, identifier=5))
    for number in range(others):
        router.subscribe(Client(f"o{number}"), "a/#", Options())
    targets = router.match("a/b").targets
    assert len(targets) == 1 + others
    [merged] = [target for target in targets if target.subscriber is client]
    assert merged.qos == 2
    assert merged.retain_as_published
    assert merged.identifiers == (7, 3, 5)
    assert not merged.no_local
    # A replaced subscription keeps its place.
    router.subscribe(client, "a/#", Options(qos=1, identifier=9))
    [merged] = [target for target in router.match("a/b").targets if target.subscriber is client]
    assert merged.identifiers == (9, 3, 5)
    for filter in ("a/b", "+/b", "#"):
        router.unsubscribe(client, filter)
    [alone] = [target for target in router.match("a/b").targets if target.subscriber is client]
    assert (alone.qos, alone.identifiers, alone.retain_as_published) == (1, (9,), False)


def test_no_local_alone(router: Router[Client]) -> None:
    router.subscribe(Client("c"), "a", Options(no_local=True))
    [target] = router.match("a").targets
    assert target.no_local
    assert target.own is None


def test_no_local_of_some_overlapping_subscriptions(router: Router[Client]) -> None:
    client = Client("c")
    router.subscribe(client, "a/b", Options(qos=2, no_local=True, identifier=1))
    router.subscribe(client, "a/+", Options(qos=1, identifier=2))
    router.subscribe(client, "a/#", Options(qos=0, identifier=3, retain_as_published=True))
    [target] = router.match("a/b").targets
    assert (target.qos, target.identifiers, target.no_local) == (2, (1, 2, 3), True)
    assert target.own is not None
    own = target.own
    assert (own.qos, own.identifiers, own.retain_as_published, own.no_local) == (1, (2, 3), True, False)
    router.unsubscribe(client, "a/#")
    router.subscribe(client, "a/+", Options(no_local=True))
    [target] = router.match("a/b").targets
    assert target.no_local
    assert target.own is None


def test_one_subscription_is_its_own_target(router: Router[Client]) -> None:
    router.subscribe(Client("c"), "a/+", Options(qos=1))
    [first] = router.match("a/b").targets
    [second] = router.match("a/c").targets
    assert first is second


def test_topics_of_one_filter_share_its_targets(router: Router[Client]) -> None:
    for number in range(50):
        router.subscribe(Client(f"c{number}"), "a/+", Options())
        router.subscribe(Client(f"d{number}"), "#", Options())
    assert router.match("a/b").targets is router.match("a/c").targets
    assert router.match("x").targets is router.match("y").targets
    assert len(router.match("a/b").targets) == 100


def test_a_known_topic_is_not_resolved_again(router: Router[Client]) -> None:
    router.subscribe(Client("c"), "a/+", Options())
    router.subscribe(Client("c"), "x/y", Options())
    before = router.match("a/b"), router.match("x/y"), router.match("nobody")
    router.subscribe(Client("d"), "a/c", Options())
    router.subscribe(Client("d"), "x/+/z", Options())
    assert (router.match("a/b"), router.match("x/y"), router.match("nobody")) == before
    router.subscribe(Client("d"), "a/b", Options())
    router.subscribe(Client("d"), "x/#", Options())
    router.subscribe(Client("d"), "+", Options())
    assert receivers(router, "a/b") == ["c", "d"]
    assert receivers(router, "x/y") == ["c", "d"]
    assert receivers(router, "nobody") == ["d"]


def test_the_same_subscription_again_changes_nothing(router: Router[Client]) -> None:
    client = Client("c")
    router.subscribe(client, "a/+", Options(qos=1))
    route = router.match("a/b")
    assert not router.subscribe(client, "a/+", Options(qos=1))
    assert router.match("a/b") is route


def test_counts(router: Router[Client]) -> None:
    clients = [Client(f"c{number}") for number in range(4)]
    for client in clients:
        for filter in ("a", "b/+", "b/+/#", "$share/g/a", "$share/g/b/+", "$share/h/a"):
            router.subscribe(client, filter, Options())
    assert (router.subscriptions, router.shared_subscriptions, router.groups) == (24, 12, 3)
    assert router.filters == 5
    for client in clients:
        filters = ["a", "b/+", "b/+/#", "$share/g/a", "$share/g/b/+", "$share/h/a", "no"]
        assert [router.unsubscribe(client, filter) for filter in filters] == [True] * 6 + [False]
    assert (router.subscriptions, router.shared_subscriptions, router.groups) == (0, 0, 0)
    assert router.filters == 0


def test_shared_and_ordinary_subscriptions_are_apart(router: Router[Client]) -> None:
    client = Client("c")
    router.subscribe(client, "a/+", Options(qos=0))
    router.subscribe(client, "$share/g/a/+", Options(qos=1))
    router.subscribe(client, "$share/h/a/b", Options(qos=2))
    route = router.match("a/b")
    assert [target.qos for target in route.targets] == [0]
    picked = [group.pick("p", "a/b") for group in route.groups]
    assert [(target.qos, target.group) for target in picked if target is not None] == [
        (1, router.group("$share/g/a/+")),
        (2, router.group("$share/h/a/b")),
    ]


def test_groups_of_one_filter(router: Router[Client]) -> None:
    client = Client("c")
    for name in ("g", "h", "i"):
        router.subscribe(client, f"$share/{name}/a", Options())
    assert sorted(group.name for group in router.match("a").groups) == ["g", "h", "i"]
    router.unsubscribe(client, "$share/g/a")
    router.unsubscribe(client, "$share/h/a")
    assert [group.name for group in router.match("a").groups] == ["i"]
    assert router.group("$share/g/a") is None
    assert router.group("a") is None
    router.unsubscribe(client, "$share/i/a")
    assert not router.match("a")


def test_a_shared_filter_with_dollar_topics(router: Router[Client]) -> None:
    router.subscribe(Client("c"), "$share/g/#", Options())
    router.subscribe(Client("c"), "$share/h/$SYS/#", Options())
    assert [group.name for group in router.match("$SYS/x").groups] == ["h"]
    assert [group.name for group in router.match("x").groups] == ["g"]


def test_count_of_a_filter(router: Router[Client]) -> None:
    a, b = Client("a"), Client("b")
    for filter in ("t", "t/#", "$share/g/t", "$share/h/t"):
        assert router.count(filter) == 0
        router.subscribe(a, filter, Options())
        assert router.count(filter) == 1
        router.subscribe(b, filter, Options())
        router.subscribe(b, filter, Options(qos=1))
        assert router.count(filter) == 2 == len(router.targets(filter))


def test_a_route_knows_whether_a_durable_subscriber_is_behind_it() -> None:
    router: Router[Client] = Router()
    one, durable, another = Client("one"), Client("durable", durable=True), Client("another", durable=True)
    router.subscribe(one, "t", Options())
    assert not router.match("t").durable
    router.subscribe(durable, "t", Options())
    assert router.match("t").durable
    router.unsubscribe(durable, "t")
    assert not router.match("t").durable
    # a route with a group is remembered while members come and go
    router.subscribe(one, "$share/g/t", Options())
    assert not router.match("t").durable
    router.subscribe(durable, "$share/g/t", Options())
    assert router.match("t").durable
    router.subscribe(another, "$share/g/t", Options())
    router.subscribe(another, "$share/g/t", Options(qos=1))  # the same member
    router.unsubscribe(durable, "$share/g/t")
    assert router.match("t").durable
    router.unsubscribe(another, "$share/g/t")
    assert not router.match("t").durable
    assert router.match("t").groups


def test_a_subscriber_that_becomes_durable() -> None:
    for filters in (["t", "+/u", "$share/g/v"], [*map(str, range(200)), "t", "+/u", "$share/g/v"]):
        router: Router[Client] = Router()
        client = Client("client")
        for filter in filters:
            router.subscribe(client, filter, Options())
        topics = ("t", "x/u", "v")
        assert not any(router.match(topic).durable for topic in topics)
        client.durable = True
        router.refresh(client, [filter for filter in filters if filter != "t"])
        assert all(router.match(topic).durable for topic in topics[1:])
        router.refresh(client, filters)
        assert all(router.match(topic).durable for topic in topics)
        for filter in filters:
            router.unsubscribe(client, filter)
        assert not any(router.match(topic).durable for topic in topics)
