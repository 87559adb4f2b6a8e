"""Made-up access rules, topic filters and topics, small enough to try all of them."""

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
