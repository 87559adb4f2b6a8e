import re
from pathlib import Path

from trunkline.broker.metrics import WINDOWS, DropReason, Gauges, LimitKind, Metrics, Rates, described
from trunkline.broker.sys_topics import DERIVED, LIMITS, LOADS, PREFIX, RATED, TOTALS, changed, sys_topics
from trunkline.mqtt.packets import PacketType

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"

#: What Mosquitto publishes, from 2.0 to 2.1, but for what docs/metrics.md says would cost every message:
#: publish/bytes/received, publish/bytes/sent and packet/out/count.
MOSQUITTO = [
    "version",
    "uptime",
    "bytes/received",
    "bytes/sent",
    "clients/active",
    "clients/connected",
    "clients/disconnected",
    "clients/expired",
    "clients/inactive",
    "clients/maximum",
    "clients/total",
    "connections/socket/count",
    "heap/current",
    "heap/maximum",
    "messages/received",
    "messages/sent",
    "messages/stored",
    "packet/out/bytes",
    "publish/messages/dropped",
    "publish/messages/received",
    "publish/messages/sent",
    "shared_subscriptions/count",
    "subscriptions/count",
    "store/messages/bytes",
    "store/messages/count",
]
MOSQUITTO_LOADS = [
    "bytes/received",
    "bytes/sent",
    "connections",
    "messages/received",
    "messages/sent",
    "publish/dropped",
    "publish/received",
    "publish/sent",
    "sockets",
]


def topics(metrics: Metrics | None = None, gauges: Gauges | None = None, uptime: float = 0.0) -> dict[str, str]:
    figures = (metrics or Metrics()).snapshot() | (gauges or Gauges()).snapshot()
    rates = Rates(RATED, 0.0)
    rates.update(figures, 60.0)
    pairs = list(sys_topics("1.2.3", uptime, figures, rates.averages))
    assert len(dict(pairs)) == len(pairs)
    return {topic.removeprefix(PREFIX): payload.decode() for topic, payload in pairs}


def test_every_topic_of_mosquitto_is_there() -> None:
    expected = {*MOSQUITTO, "retained messages/count"}
    expected |= {f"load/{name}/{window}" for name in MOSQUITTO_LOADS for window in ("1min", "5min", "15min")}
    assert expected - set(topics()) == set()


def test_payloads_read_as_mosquittos_do() -> None:
    published = topics(uptime=165.9)
    assert published.pop("version") == "trunkline version 1.2.3"
    assert published.pop("uptime") == "165 seconds"
    loads = {topic: payload for topic, payload in published.items() if topic.startswith("load/")}
    assert len(loads) == 27
    assert set(loads.values()) == {"0.00"}
    assert {published[topic] for topic in published.keys() - loads.keys()} == {"0"}


def test_figures_stand_under_their_topics() -> None:
    metrics = Metrics(messages_in=[2, 2, 1], bytes_sent=100, session_expired=2)
    metrics.received[PacketType.PINGREQ] = 2
    gauges = Gauges(connections_count=3, sessions_count=8, sessions_max=9, retained_count=4, queue_count=10)
    published = topics(metrics, gauges)
    assert published["messages/received"] == "7"
    assert published["publish/messages/received"] == "5"
    assert published["bytes/sent"] == "100"
    assert published["clients/connected"] == published["clients/active"] == "3"
    assert published["clients/disconnected"] == published["clients/inactive"] == "5"
    assert published["clients/total"] == "8"
    assert published["clients/maximum"] == "9"
    assert published["clients/expired"] == "2"
    assert published["retained messages/count"] == "4"
    assert published["store/messages/count"] == published["messages/stored"] == "14"


def test_loads_are_events_a_minute() -> None:
    published = topics(Metrics(messages_in=[1000, 0, 0], connections_accepted=10))
    assert published["load/messages/received/1min"] == "632.12"
    assert published["load/messages/received/5min"] == "181.27"
    assert published["load/messages/received/15min"] == "64.49"
    assert published["load/sockets/1min"] == "6.32"


def test_more_connections_than_sessions_is_not_less_than_nobody() -> None:
    assert topics(gauges=Gauges(connections_count=3, sessions_count=2))["clients/disconnected"] == "0"


def test_topics_can_be_published() -> None:
    assert not set("".join(topics())) & set("+#\0")


def test_only_what_changed_is_published_again() -> None:
    published: dict[str, bytes] = {}
    assert list(changed([("a", b"1"), ("b", b"1")], published)) == [("a", b"1"), ("b", b"1")]
    assert list(changed([("a", b"1"), ("b", b"2")], published)) == [("b", b"2")]
    assert list(changed([("a", b"1"), ("b", b"2")], published)) == []


def test_the_page_of_metrics_lists_what_there_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = dict(rows)
    assert len(documented) == len(rows)
    for fixed in ("version", "uptime"):
        assert documented.pop(PREFIX + fixed)
    assert documented.pop("packets.TYPE.sent")
    types = set(re.findall(r"`(\w+)`", documented.pop("packets.TYPE.received")))
    each = {f"packets.{kind}.{way}" for kind in types for way in ("received", "sent")}
    expected = {name: text for name, text in described(Metrics).items() if name not in each} | described(Gauges)
    assert each <= set(described(Metrics))
    expected |= {PREFIX + topic: text for topic, (_, text) in TOTALS.items()}
    expected |= {PREFIX + topic: text for topic, (_, text) in DERIVED.items()}
    expected |= {f"{PREFIX}load/{topic}": text for topic, (_, text) in LOADS.items()}
    assert documented == expected


def test_every_limit_has_a_topic() -> None:
    metrics = Metrics(connections_refused=2)
    metrics.limited[LimitKind.OVERLOAD_LAG] = 3
    metrics.dropped[DropReason.OVERLOADED] = 4
    published = topics(metrics, Gauges(overload_active=1))
    assert {f"limits/{kind.counter.replace('.', '/')}" for kind in LimitKind} < set(published)
    assert published["limits/connections/refused"] == "2"
    assert published["limits/overload/lag"] == "3"
    assert published["limits/overload/active"] == "1"
    assert published["limits/delivery/dropped/overloaded"] == "4"


def test_the_page_of_limits_lists_their_topics() -> None:
    page = DOCS.with_name("limits.md").read_text(encoding="utf-8")
    texts = described(Metrics) | described(Gauges)
    assert re.findall(r"^\| `(limits/.+?)` \| (.+) \|$", page, re.MULTILINE) == [
        (topic, texts[name]) for topic, name in LIMITS.items()
    ]


def test_the_page_of_metrics_names_the_windows() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"`/{window}`" in text for window in WINDOWS)
