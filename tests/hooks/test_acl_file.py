"""Rules files: what they say, and what is told of a wrong one."""

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hooks.rules import RULES, serialise_rules
from trunkline.hooks.acl import Rule, Topic
from trunkline.hooks.acl_file import DEFAULT_RULES, AclError, parse_rules


def test_a_full_rule() -> None:
    text = """
    [[rule]]
    permit = "allow"
    user = "ada"
    client = ["c1", "c2"]
    address = ["10.0.0.0/8", "::1", "loopback"]
    action = "publish"
    topics = ["home/%u/#", { eq = "#" }]
    qos = 1
    retain = false
    """
    assert parse_rules(text) == [
        Rule(
            "allow",
            "publish",
            users=("ada",),
            clients=("c1", "c2"),
            addresses=(ip_network("10.0.0.0/8"), ip_network("::1"), "loopback"),
            topics=(Topic("home/%u/#"), Topic("#", literal=True)),
            qos=(1,),
            retain=False,
        )
    ]


def test_an_empty_file_has_no_rules() -> None:
    assert parse_rules("# nothing\n") == []


def test_all_problems_are_told_at_once() -> None:
    text = """
    title = "x"
    [[rule]]
    permit = "maybe"
    usr = "ada"
    [[rule]]
    permit = "allow"
    user = 7
    address = ["10.0.0.1/8", "nowhere"]
    action = "read"
    topics = ["a/#/b", "a+", "", {eq = 5}, {like = "x"}, "$share/g/a"]
    qos = [0, 3, true]
    retain = "yes"
    [[rule]]
    topics = "a"
    client = []
    zzz = { deep = 1 }
    """
    with pytest.raises(AclError) as caught:
        parse_rules(text)
    expected = [
        "rules file: title: unknown; a rules file holds [[rule]] tables only",
        'rules file:4: permit: found "maybe"; accepted: "allow" or "deny"',
        "rules file:5: usr: unknown; did you mean user?",
        'rules file:13: retain: only a rule with action = "publish" can have it',
        'rules file:10: action: found "read"; accepted: "publish", "subscribe", "receive" or "all"',
        "rules file:8: user: found 7; accepted: a user name or a list of them",
        'rules file:9: address: found "10.0.0.1/8" (10.0.0.1/8 has host bits set); accepted: "10.0.0.0/8"',
        'rules file:9: address: found "nowhere"',
        'rules file:11: topics: found "a/#/b" (',
        'rules file:11: topics: found "a+" (',
        'rules file:11: topics: found "" (',
        'rules file:11: topics: found {"eq": 5}; accepted',
        'rules file:11: topics: found {"like": "x"}; accepted',
        'rules file:11: topics: found "$share/g/a" (shared subscriptions are judged by',
        "rules file:12: qos: found 3; accepted: 0, 1, 2",
        "rules file:12: qos: found true; accepted",
        'rules file:13: retain: found "yes"; accepted: true or false',
        "rules file:14: permit: found nothing; accepted",
        "rules file:16: client: found [] (the rule would never match)",
        'rules file:15: topics: found "a"; accepted: a list',
        "rules file:17: zzz: unknown; accepted: permit, action, user,",
    ]
    assert len(caught.value.problems) == len(expected)
    for problem, start in zip(caught.value.problems, expected, strict=True):
        assert problem.startswith(start)


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("[[rule]", "not TOML: "),
        ("# mine\nuser ann\ntopic readwrite home/#\n", "Mosquitto's rules: docs/coming-from-mosquitto.md"),
        ("pattern write devices/%c/#\n", "Mosquitto's rules: docs/coming-from-mosquitto.md"),
        ("x = " + "[" * 5000 + "]" * 5000, "not TOML: "),
        ("x = " + "9" * 5000, "not TOML: "),
        ("[rule]\npermit = 'allow'", "write [[rule]], with two brackets"),
        ("rule = [1]", "rule 1: found 1; accepted: a [[rule]] table"),
        ("rule = [2026-01-02]", 'rule 1: found "2026-01-02"; accepted: a [[rule]] table'),
    ],
)
def test_a_file_of_another_shape(text: str, needle: str) -> None:
    with pytest.raises(AclError) as caught:
        parse_rules(text)
    (problem,) = caught.value.problems
    assert needle in problem


def test_the_default_reads_back() -> None:
    assert parse_rules(serialise_rules(parse_rules(DEFAULT_RULES))) == parse_rules(DEFAULT_RULES)


@given(rules=st.lists(RULES, max_size=3))
def test_what_is_written_is_read_back(rules: list[Rule]) -> None:
    assert parse_rules(serialise_rules(rules)) == rules


@given(name=st.text(st.characters(codec="utf-8"), max_size=8))
def test_any_name_is_read_back(name: str) -> None:
    rule = Rule("deny", users=(name,), clients=(name, "x"))
    assert parse_rules(serialise_rules([rule])) == [rule]


def test_rules_for_clients_without_a_user_name_and_for_listeners() -> None:
    text = """
    [[rule]]
    permit = "deny"
    anonymous = true
    action = "publish"
    [[rule]]
    permit = "deny"
    listener = ["public", "guests"]
    topics = ["private/#"]
    [[rule]]
    permit = "allow"
    anonymous = false
    """
    rules = parse_rules(text)
    assert [rule.anonymous for rule in rules] == [True, None, False]
    assert rules[1].listeners == ("public", "guests")
    assert parse_rules(serialise_rules(rules)) == rules


def test_a_rule_for_users_and_for_clients_that_are_none_would_never_match() -> None:
    with pytest.raises(AclError) as caught:
        parse_rules("\n[[rule]]\npermit = 'allow'\nuser = 'ann'\nanonymous = true\n", "acl.toml")
    assert caught.value.problems == ["acl.toml:5: anonymous: a rule has either user or anonymous, not both"]


def test_rules_that_are_written_without_headers_are_counted() -> None:
    with pytest.raises(AclError) as caught:
        parse_rules("rule = [{permit = 'allow'}, {permit = 'maybe'}]", "acl.toml")
    (problem,) = caught.value.problems
    assert problem.startswith("acl.toml: rule 2: permit: found")


@pytest.mark.parametrize("permit", ["allow", "deny"])
def test_a_placeholder_of_others_is_refused(permit: str) -> None:
    text = f"[[rule]]\npermit = '{permit}'\ntopics = ['a/${{clientid}}/#']\n"
    with pytest.raises(AclError, match=r':3: topics: found "a/\$\{clientid\}/#" \(placeholders are %c and %u\)'):
        parse_rules(text)
    (rule,) = parse_rules(text.replace("'a/${clientid}/#'", "{ eq = 'a/${clientid}/#' }"))
    assert rule.topics == (Topic("a/${clientid}/#", literal=True),)


def test_a_listener_that_is_not_there() -> None:
    text = "[[rule]]\npermit = 'deny'\n'listener' = ['lann', 'lan', 'zzz']\n"
    assert parse_rules(text)[0].listeners == ("lann", "lan", "zzz")
    with pytest.raises(AclError) as caught:
        parse_rules(text, "acl.toml", {"lan", "in-process"})
    assert caught.value.problems == [
        'acl.toml:3: listener: no listener is called "lann"; did you mean lan?',
        'acl.toml:3: listener: no listener is called "zzz"',
    ]


def test_many_rules_are_walked_through_once() -> None:
    walked = 0

    class Text(str):
        __slots__ = ()

        def count(self, part: str, start: Any = 0, end: Any = None) -> int:
            nonlocal walked
            walked += (len(self) if end is None else end) - start
            return super().count(part, start, end)

    text = Text('[[rule]]\npermit = "deny"\n\n' * 100 + '[[rule]]\npermit = "no"\n')
    with pytest.raises(AclError, match="rules file:302: permit"):
        parse_rules(text)
    assert walked < 2 * len(text)
