"""Rules files: what they say, and what is told of a wrong one."""

from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hooks.rules import RULES
from trunkline.hooks.acl import Rule, Topic
from trunkline.hooks.acl_file import AclError, default_rules, parse_rules, serialise_rules


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
    """
    with pytest.raises(AclError) as caught:
        parse_rules(text)
    expected = [
        "title: unknown; a rules file holds [[rule]] tables only",
        "rule 1: usr: unknown; accepted: permit, user,",
        'rule 1: permit: found \'maybe\'; accepted: "allow" or "deny"',
        'rule 2: action: found \'read\'; accepted: "publish", "subscribe", "receive" or "all"',
        'rule 2: retain: only a rule with action = "publish" can ask for it',
        "rule 2: user: found 7; accepted: a user name or a list of them",
        "rule 2: address: found '10.0.0.1/8' (10.0.0.1/8 has host bits set); accepted: \"10.0.0.0/8\"",
        "rule 2: address: found 'nowhere'",
        "rule 2: topics: found 'a/#/b' (",
        "rule 2: topics: found 'a+' (",
        "rule 2: topics: found '' (",
        "rule 2: topics: found {'eq': 5}; accepted",
        "rule 2: topics: found {'like': 'x'}; accepted",
        "rule 2: topics: found '$share/g/a' (shared subscriptions are judged by",
        "rule 2: qos: found 3; accepted: 0, 1, 2",
        "rule 2: qos: found True; accepted",
        "rule 2: retain: found 'yes'; accepted: true or false",
        "rule 3: permit: found nothing; accepted",
        "rule 3: client: found an empty list, so that the rule would never match",
        "rule 3: topics: found 'a'; accepted: a list",
    ]
    assert len(caught.value.problems) == len(expected)
    for problem, start in zip(caught.value.problems, expected, strict=True):
        assert problem.startswith(start)


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("[[rule]", "not TOML: "),
        ("[rule]\npermit = 'allow'", "write [[rule]], with two brackets"),
        ("rule = [1]", "rule 1: found 1; accepted: a [[rule]] table"),
    ],
)
def test_a_file_of_another_shape(text: str, needle: str) -> None:
    with pytest.raises(AclError) as caught:
        parse_rules(text)
    (problem,) = caught.value.problems
    assert needle in problem


def test_the_default_reads_back() -> None:
    assert parse_rules(serialise_rules(default_rules())) == default_rules()


@settings(max_examples=150, deadline=None)
@given(rules=st.lists(RULES, max_size=3))
def test_what_is_written_is_read_back(rules: list[Rule]) -> None:
    assert parse_rules(serialise_rules(rules)) == rules


@settings(max_examples=150, deadline=None)
@given(name=st.text(st.characters(codec="utf-8"), max_size=8))
def test_any_name_is_read_back(name: str) -> None:
    rule = Rule("deny", users=(name,), clients=(name, "x"))
    assert parse_rules(serialise_rules([rule])) == [rule]
