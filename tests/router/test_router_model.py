"""`trunkline.router.router` against a list of subscriptions that is searched for each message."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.router.strategies import filters, topics
from tests.router.subscribers import Client
from trunkline.mqtt.topics import matches
from trunkline.router import Options, Router, Target

options = st.builds(
    Options,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.none() | st.integers(1, 3),
)
clients = st.integers(0, 4)
groups = st.sampled_from(["g", "h"])
some_topics = st.lists(topics, min_size=1, max_size=5)


class Model(RuleBasedStateMachine):
    """The subscriptions as they were made, in order; every answer is worked out anew."""

    def __init__(self) -> None:
        super().__init__()
        # A small one, so that it runs over.
        self.router: Router[Client] = Router(cache_capacity=16)
        self.clients = [Client(f"c{number}") for number in range(5)]
        self.plain: dict[tuple[Client, str], Options] = {}
        self.shared: dict[tuple[str, str], dict[Client, Options]] = {}

    @rule(number=clients, filter=filters, options=options)
    def subscribe(self, number: int, filter: str, options: Options) -> None:
        client = self.clients[number]
        assert self.router.subscribe(client, filter, options) == ((client, filter) not in self.plain)
        self.plain[client, filter] = options

    @rule(number=clients, filter=filters)
    def unsubscribe_perhaps(self, number: int, filter: str) -> None:
        client = self.clients[number]
        expected = self.plain.pop((client, filter), None) is not None
        assert self.router.unsubscribe(client, filter) == expected

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client, filter = data.draw(st.sampled_from(sorted(self.plain, key=lambda key: (key[0].client_id, key[1]))))
        del self.plain[client, filter]
        assert self.router.unsubscribe(client, filter)

    @rule(number=clients, name=groups, filter=filters, options=options)
    def join(self, number: int, name: str, filter: str, options: Options) -> None:
        client = self.clients[number]
        members = self.shared.setdefault((name, filter), {})
        assert self.router.subscribe(client, f"$share/{name}/{filter}", options) == (client not in members)
        members[client] = options

    @precondition(lambda self: self.shared)
    @rule(data=st.data(), number=clients)
    def leave(self, data: st.DataObject, number: int) -> None:
        name, filter = data.draw(st.sampled_from(sorted(self.shared)))
        members = self.shared[name, filter]
        client = self.clients[number]
        expected = members.pop(client, None) is not None
        assert self.router.unsubscribe(client, f"$share/{name}/{filter}") == expected
        if not members:
            del self.shared[name, filter]

    @rule(number=clients)
    def end(self, number: int) -> None:
        client = self.clients[number]
        own = [filter for each, filter in self.plain if each is client]
        for key, members in list(self.shared.items()):
            if members.pop(client, None) is not None:
                own.append(f"$share/{key[0]}/{key[1]}")
            if not members:
                del self.shared[key]
        self.plain = {key: value for key, value in self.plain.items() if key[0] is not client}
        assert all(self.router.unsubscribe(client, filter) for filter in own)

    @rule(asked=some_topics)
    def match(self, asked: list[str]) -> None:
        for topic in asked:
            for _ in range(2):
                self.check(topic)

    def check(self, topic: str) -> None:
        route = self.router.match(topic)
        expected: dict[Client, list[Options]] = {}
        for (client, filter), each in self.plain.items():
            if matches(filter, topic):
                expected.setdefault(client, []).append(each)
        assert {target.subscriber for target in route.targets} == set(expected)
        assert len(route.targets) == len(expected)
        for target in route.targets:
            self.check_target(target, expected[target.subscriber])
        found = Counter((group.name, group.filter, len(group)) for group in route.groups)
        wanted = {(*key, len(members)) for key, members in self.shared.items() if matches(key[1], topic)}
        assert found == Counter(wanted)
        assert bool(route) == bool(expected or wanted)

    def check_target(self, target: Target[Client], subscriptions: list[Options]) -> None:
        assert target.qos == max(each.qos for each in subscriptions)
        assert target.retain_as_published == any(each.retain_as_published for each in subscriptions)
        assert list(target.identifiers) == [each.identifier for each in subscriptions if each.identifier is not None]
        assert target.no_local == any(each.no_local for each in subscriptions)
        heard = [each for each in subscriptions if not each.no_local]
        if not target.no_local or not heard:
            assert target.own is None
        else:
            assert target.own is not None
            self.check_target(target.own, heard)

    @invariant()
    def counts(self) -> None:
        router = self.router
        members = sum(len(members) for members in self.shared.values())
        assert router.subscriptions == len(self.plain) + members
        assert router.shared_subscriptions == members
        assert router.groups == len(self.shared)
        plain = {filter for _, filter in self.plain}
        shared = {filter for _, filter in self.shared}
        assert router.filters == len(plain) + len(shared)
        assert router.page(limit=1000) == sorted(plain | {f"$share/{name}/{filter}" for name, filter in self.shared})

    def teardown(self) -> None:
        for number in range(5):
            self.end(number)
        self.counts()
        tables = self.router._plain, self.router._shared
        assert [table.wildcards.nodes for table in tables] == [0, 0]
        assert self.router.filters == 0


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)
