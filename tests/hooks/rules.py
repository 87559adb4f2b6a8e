"""Made-up access rules, topic filters and topics, small enough to try all of them."""

from collections.abc import Iterable
from ipaddress import ip_network
from itertools import product

from hypothesis import strategies as st

from trunkline.hooks.acl import Rule, Topic

LEVELS = ("a", "b", "", "$x")
WORDS = st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=3)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(WORDS)
    if draw(st.booleans()):
        levels[-1] = "#"
    text = "/".join(levels)
    return text or "a"


#: "z" stands for every word that no filter names; one level deeper than any filter. The empty topic is
#: none in MQTT, but without it "/#" would match the same as "/+/#".
TOPICS = ["/".join(words) for size in range(1, 5) for words in product((*LEVELS, "z"), repeat=size)]
RULES = st.builds(
    Rule,
    permit=st.sampled_from(["allow", "deny"]),
    action=st.sampled_from(["publish", "subscribe", "receive", "all"]),
    users=st.none() | st.lists(st.sampled_from(["ada", "bob"]), min_size=1).map(tuple),
    clients=st.none() | st.lists(st.sampled_from(["c", "d"]), min_size=1).map(tuple),
    addresses=st.none() | st.sampled_from([("loopback",), (ip_network("10.0.0.0/8"),), (ip_network("::/0"),)]),
    topics=st.none() | st.lists(st.builds(Topic, filters(), st.booleans()), min_size=1, max_size=3).map(tuple),
    qos=st.none() | st.sampled_from([(0,), (1, 2)]),
)


def serialise_rules(rules: Iterable[Rule]) -> str:
    """The text of a file with these rules; `parse_rules` gives them back."""
    return "\n".join(_table(rule) for rule in rules)


def _table(rule: Rule) -> str:
    lines = ["[[rule]]", f'permit = "{rule.permit}"']
    for key, names in (("user", rule.users), ("client", rule.clients), ("listener", rule.listeners)):
        if names is not None:
            lines.append(f"{key} = [{', '.join(map(_quote, names))}]")
    if rule.anonymous is not None:
        lines.append(f"anonymous = {str(rule.anonymous).lower()}")
    if rule.addresses is not None:
        lines.append(f"address = [{', '.join(_quote(str(network)) for network in rule.addresses)}]")
    lines.append(f'action = "{rule.action}"')
    if rule.topics is not None:
        topics = (f"{{ eq = {_quote(topic.text)} }}" if topic.literal else _quote(topic.text) for topic in rule.topics)
        lines.append(f"topics = [{', '.join(topics)}]")
    if rule.qos is not None:
        lines.append(f"qos = [{', '.join(map(str, rule.qos))}]")
    if rule.retain is not None:
        lines.append(f"retain = {str(rule.retain).lower()}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
