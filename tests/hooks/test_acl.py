"""Access rules against their meaning, and against a brute-force reading of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hooks.rules import RULES, TOPICS, filters
from trunkline.hooks import ClientInfo
from trunkline.hooks.acl import Acl, ClientAcl, Permit, Rule, Topic, covers
from trunkline.hooks.acl_file import DEFAULT_RULES, parse_rules

LOCAL = ClientInfo("local", peer=("127.0.0.1", 5000))
REMOTE = ClientInfo("remote", peer=("192.0.2.7", 5000))


def acl(text: str, client: ClientInfo = REMOTE, no_match: Permit = "deny") -> ClientAcl:
    return Acl(parse_rules(text), no_match=no_match).compile_for(client)


def naive_match(filter: str, topic: str) -> bool:
    """The specification's words, as directly as they can be written."""
    if topic.startswith("$") and filter[0] in "+#":
        return False
    levels, names = filter.split("/"), topic.split("/")
    if levels[-1] == "#":
        if len(names) < len(levels) - 1:
            return False
        levels, names = levels[:-1], names[: len(levels) - 1]
    return len(levels) == len(names) and all(level in ("+", name) for level, name in zip(levels, names, strict=True))


class TestDefault:
    @pytest.mark.parametrize(
        ("client", "action", "topic", "allowed"),
        [
            (REMOTE, "subscribe", "#", False),
            (REMOTE, "subscribe", "+/#", False),
            (REMOTE, "subscribe", "$share/g/#", False),
            (REMOTE, "subscribe", "$SYS/#", False),
            (REMOTE, "subscribe", "$SYS/broker/uptime", False),
            (REMOTE, "subscribe", "$share/g/$SYS/+", False),
            (REMOTE, "subscribe", "a/#", True),
            (REMOTE, "publish", "a", True),
            (LOCAL, "subscribe", "#", True),
            (LOCAL, "subscribe", "$SYS/#", True),
            (LOCAL, "subscribe", "$share/g/$SYS/#", True),
            (ClientInfo("six", peer=("::1", 1)), "subscribe", "#", True),
            (ClientInfo("mapped", peer=("::ffff:127.0.0.1", 1)), "subscribe", "#", True),
            (ClientInfo("in-process"), "subscribe", "$SYS/#", True),
            (ClientInfo("odd", peer=("no address", 1)), "subscribe", "#", False),
        ],
    )
    def test_it(self, client: ClientInfo, action: str, topic: str, allowed: bool) -> None:
        for no_match in ("allow", "deny"):
            acl = Acl(parse_rules(DEFAULT_RULES), no_match=no_match)  # type: ignore[arg-type]
            assert acl.compile_for(client).check(action, topic) is allowed  # type: ignore[arg-type]


class TestRules:
    def test_the_first_match_wins(self) -> None:
        rules = acl("""
            rule = [
                {permit = "deny", topics = ["a/secret"]},
                {permit = "allow", topics = ["a/#"]},
                {permit = "deny", topics = ["a/late"]},
            ]""")
        assert not rules.check("publish", "a/secret")
        assert rules.check("publish", "a/late")
        assert not rules.check("publish", "b")

    @pytest.mark.parametrize("no_match", ["allow", "deny"])
    def test_no_match(self, no_match: Permit) -> None:
        assert Acl([], no_match=no_match).compile_for(REMOTE).check("publish", "a") is (no_match == "allow")

    def test_everything_that_a_rule_names_must_hold(self) -> None:
        text = 'rule = [{permit = "allow", user = ["ada", "bob"], client = "c", address = "10.0.0.0/8"}]'
        fits = ClientInfo("c", username="bob", peer=("10.1.2.3", 1))
        assert acl(text, fits).check("publish", "a")
        for other in (
            ClientInfo("c", username="eve", peer=("10.1.2.3", 1)),
            ClientInfo("d", username="bob", peer=("10.1.2.3", 1)),
            ClientInfo("c", username="bob", peer=("11.1.2.3", 1)),
            ClientInfo("c", username="bob", peer=("::1", 1)),
            ClientInfo("c", username=None, peer=("10.1.2.3", 1)),
            ClientInfo("c", username="bob"),
        ):
            assert not acl(text, other).check("publish", "a")

    def test_rules_for_names_keep_their_place_among_the_others(self) -> None:
        rules = Acl(
            parse_rules("""rule = [
                {permit = "deny", topics = ["first"]},
                {permit = "allow", user = "ada"},
                {permit = "deny", client = "c", topics = ["third"]},
                {permit = "deny"},
            ]"""),
        )
        ada = rules.compile_for(ClientInfo("c", username="ada"))
        assert not ada.check("publish", "first")
        assert ada.check("publish", "third")
        assert not rules.compile_for(ClientInfo("c")).check("publish", "other")

    def test_actions(self) -> None:
        text = 'rule = [{permit = "allow", action = "publish", topics = ["p"]}, {permit = "allow", topics = ["both"]}]'
        assert acl(text).check("publish", "p")
        assert not acl(text).check("subscribe", "p")
        assert acl(text).check("publish", "both")
        assert acl(text).check("subscribe", "both")

    def test_qos_and_retain(self) -> None:
        rules = acl("""rule = [
            {permit = "deny", action = "publish", retain = true},
            {permit = "allow", qos = [0, 1]},
        ]""")
        assert rules.check("publish", "a", qos=1)
        assert not rules.check("publish", "a", qos=2)
        assert not rules.check("publish", "a", qos=0, retain=True)

    def test_subscribing_needs_a_rule_that_covers_the_filter(self) -> None:
        rules = acl('rule = [{permit = "allow", topics = ["a/+", "b/#"]}]')
        assert rules.check("subscribe", "a/+")
        assert rules.check("subscribe", "a/x")
        assert not rules.check("subscribe", "a/#")
        assert not rules.check("subscribe", "+/x")
        assert rules.check("subscribe", "b/+/c/#")
        assert rules.check("subscribe", "b")
        assert rules.check("subscribe", "$share/group/b/#")
        assert not rules.check("subscribe", "$share/b/c")

    def test_literals_are_compared_as_text(self) -> None:
        rules = acl('rule = [{permit = "deny", topics = [{eq = "a/#"}, {eq = "#"}]}, {permit = "allow"}]')
        assert not rules.check("subscribe", "a/#")
        assert not rules.check("subscribe", "#")
        assert rules.check("subscribe", "a/b")
        assert rules.check("publish", "a/b")

    def test_wildcards_do_not_reach_dollar_topics_but_a_rule_without_topics_does(self) -> None:
        assert not acl('rule = [{permit = "allow", topics = ["#", "+/x"]}]').check("publish", "$a/x")
        assert acl('rule = [{permit = "allow", topics = ["$a/#"]}]').check("publish", "$a/x")
        assert acl('rule = [{permit = "allow"}]').check("publish", "$a/x")

    def test_receiving_is_checked_only_where_a_rule_denies_it(self) -> None:
        rules = acl('rule = [{permit = "deny", action = "receive", topics = ["a/secret/#"]}]')
        assert not rules.check("receive", "a/secret/x")
        assert rules.check("receive", "a/open")
        assert acl('rule = [{permit = "deny"}]').check("receive", "a")

    def test_superusers_may_do_everything(self) -> None:
        assert acl('rule = [{permit = "deny"}]', ClientInfo("c", superuser=True)).check("publish", "a")

    def test_clients_of_the_same_rules_share_them(self) -> None:
        rules = Acl(parse_rules(DEFAULT_RULES))
        assert rules.compile_for(REMOTE) is rules.compile_for(ClientInfo("other", peer=("192.0.2.9", 1)))
        assert rules.compile_for(REMOTE) is not rules.compile_for(LOCAL)


class TestPlaceholders:
    RULES = """rule = [
        {permit = "deny", topics = ["deny/%c/x"]},
        {permit = "allow", topics = ["in/%c/#", "u/%u", "%u/top", "pre-%c-post", {eq = "lit/%c"}, "both/%c/%u"]},
        {permit = "allow", topics = ["deny/#"]},
    ]"""

    def test_names_are_put_in(self) -> None:
        rules = acl(self.RULES, ClientInfo("c1", username="ada"))
        for topic in ("in/c1/x/y", "u/ada", "ada/top", "pre-c1-post", "lit/c1", "both/c1/ada"):
            assert rules.check("publish", topic)
        for topic in ("in/c2/x", "u/bob", "u/%u", "pre-c2-post", "lit/%c"):
            assert not rules.check("publish", topic)

    @pytest.mark.parametrize("name", ["", "+", "#", "a/b", "a+", "x#"])
    def test_a_name_that_would_widen_a_rule_is_not_put_in(self, name: str) -> None:
        rules = acl(self.RULES, ClientInfo(name, username=name))
        for topic in ("in/c1/x", "in/a/b/x", "u/ada", f"u/{name}", "ada/top", "lit/#", f"lit/{name}", "in"):
            assert not rules.check("subscribe", topic)
            assert not rules.check("publish", topic)

    @pytest.mark.parametrize("name", ["", "+", "#", "a/b"])
    def test_a_deny_rule_then_denies_everything_from_there_on(self, name: str) -> None:
        rules = acl(self.RULES, ClientInfo(name))
        assert not rules.check("publish", "deny/c/x")
        assert not rules.check("publish", "deny/other")
        assert not rules.check("subscribe", "deny/#")
        front = acl('rule = [{permit = "deny", topics = ["%u/x"]}, {permit = "allow"}]', ClientInfo("c"))
        assert not front.check("publish", "a")
        assert not front.check("publish", "$a")

    def test_no_user_name_is_no_name(self) -> None:
        assert not acl(self.RULES, ClientInfo("c1")).check("publish", "u/")
        assert not acl(self.RULES, ClientInfo("c1")).check("publish", "u/None")

    def test_a_name_cannot_reach_dollar_topics(self) -> None:
        rules = acl('rule = [{permit = "allow", topics = ["%u/#", "$own/%u"]}]', ClientInfo("c", username="$SYS"))
        assert not rules.check("subscribe", "$SYS/#")
        assert rules.check("publish", "$own/$SYS")

    def test_a_name_that_looks_like_a_placeholder_is_a_name(self) -> None:
        rules = acl('rule = [{permit = "allow", topics = ["%c/#"]}]', ClientInfo("%u", username="ada"))
        assert not rules.check("publish", "ada/x")
        assert rules.check("publish", "%u/x")


class TestBruteForce:
    @given(rule=filters(), filter=filters())
    def test_covering_is_matching_every_topic_that_the_filter_matches(self, rule: str, filter: str) -> None:
        matched = [topic for topic in TOPICS if naive_match(filter, topic)]
        expected = all(naive_match(rule, topic) for topic in matched)
        client_acl = Acl([Rule("allow", topics=(Topic(rule),))], no_match="deny").compile_for(REMOTE)
        assert client_acl.check("subscribe", filter) is expected

    @given(rule=filters(), topic=st.sampled_from(TOPICS))
    def test_a_topic_is_covered_when_it_matches(self, rule: str, topic: str) -> None:
        assert covers(rule.split("/"), topic.split("/")) is naive_match(rule, topic)

    @given(
        rules=st.lists(RULES, max_size=5),
        no_match=st.sampled_from(["allow", "deny"]),
        username=st.sampled_from([None, "ada", "bob", "eve"]),
        client_id=st.sampled_from(["c", "d", "e"]),
        address=st.sampled_from([None, "127.0.0.1", "10.2.3.4", "::1", "2001:db8::1"]),
        action=st.sampled_from(["publish", "receive"]),
        topic=st.sampled_from(TOPICS),
        qos=st.integers(0, 2),
    )
    def test_the_first_rule_that_matches_decides(
        self,
        rules: list[Rule],
        no_match: Permit,
        username: str | None,
        client_id: str,
        address: str | None,
        action: str,
        topic: str,
        qos: int,
    ) -> None:
        client = ClientInfo(client_id, username=username, peer=None if address is None else (address, 1))

        def who(rule: Rule) -> bool:
            user = rule.users is None or username in rule.users
            named = rule.clients is None or client_id in rule.clients
            if rule.addresses is None:
                near = True
            elif rule.addresses == ("loopback",):
                near = address in {None, "127.0.0.1", "::1"}
            elif str(rule.addresses[0]) == "::/0":
                near = address is not None and ":" in address
            else:
                near = address == "10.2.3.4"
            return user and named and near

        def what(rule: Rule) -> bool:
            acts = rule.action == action or (rule.action == "all" and action == "publish")
            topics = rule.topics is None or any(
                topic == entry.text if entry.literal else naive_match(entry.text, topic) for entry in rule.topics
            )
            return acts and topics and (rule.qos is None or qos in rule.qos)

        decisions = [rule.permit for rule in rules if who(rule) and what(rule)]
        default = "allow" if action == "receive" else no_match
        expected = (decisions or [default])[0] == "allow"
        compiled = Acl(rules, no_match=no_match).compile_for(client)
        assert compiled.check(action, topic, qos) is expected  # type: ignore[arg-type]


class TestWhoIsConcerned:
    @pytest.mark.parametrize(("username", "allowed"), [(None, False), ("", True), ("ann", True)])
    def test_clients_without_a_user_name(self, username: str | None, allowed: bool) -> None:
        text = '[[rule]]\npermit = "deny"\nanonymous = true\n[[rule]]\npermit = "allow"\n'
        assert acl(text, ClientInfo("c", username)).check("publish", "t") is allowed
        text = '[[rule]]\npermit = "deny"\nanonymous = false\n[[rule]]\npermit = "allow"\n'
        assert acl(text, ClientInfo("c", username)).check("publish", "t") is not allowed

    def test_one_client_by_two_listeners(self) -> None:
        rules = Acl(parse_rules('[[rule]]\npermit = "allow"\nlistener = "inside"\n'), no_match="deny")
        for listener, allowed in (("inside", True), ("outside", False), ("inside", True)):
            client = ClientInfo("c", "ann", listener=listener)
            assert rules.compile_for(client).check("publish", "t") is allowed
