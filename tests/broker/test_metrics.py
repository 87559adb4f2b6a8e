import re
from dataclasses import fields
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.broker.metrics import DropReason, Gauges, Metrics, Rates, described
from trunkline.mqtt.packets import PacketType


def test_all_counters_begin_at_zero() -> None:
    assert set(Metrics().snapshot().values()) == {0}


def test_a_snapshot_has_every_counter_under_its_name() -> None:
    metrics = Metrics(received=[2] * 16, sent=[3] * 16, messages_in=[1, 2, 3], messages_out=[2, 3, 4])
    named = [f for f in fields(metrics) if f.metadata]
    for number, f in enumerate(named):
        setattr(metrics, f.name, number)
    snapshot = metrics.snapshot()
    assert list(snapshot) == list(described(Metrics))
    by_attribute = {name.replace(".", "_"): count for name, count in snapshot.items()}
    assert [by_attribute[f.name] for f in named] == list(range(len(named)))
    assert (snapshot["packets.puback.received"], snapshot["packets.suback.sent"]) == (2, 3)
    assert (snapshot["messages.qos2.received"], snapshot["messages.received"]) == (3, 6)
    assert (snapshot["messages.qos0.sent"], snapshot["messages.sent"]) == (2, 9)


def test_packets_count_in_total_and_publish_counts_by_qos() -> None:
    metrics = Metrics(messages_in=[1, 2, 3])
    metrics.received[PacketType.SUBSCRIBE] = 5
    snapshot = metrics.snapshot()
    assert (snapshot["packets.publish.received"], snapshot["packets.received"]) == (6, 11)


@pytest.mark.parametrize("kind", [Metrics, Gauges])
def test_names_are_the_attributes_with_dots(kind: type[Metrics] | type[Gauges]) -> None:
    names = list(described(kind))
    assert {f.name for f in fields(kind) if f.metadata} <= {name.replace(".", "_") for name in names}
    assert all(re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", name) for name in names)
    assert all(text.endswith(".") for text in described(kind).values())


def test_counters_and_gauges_share_no_name() -> None:
    assert set(described(Metrics)).isdisjoint(described(Gauges))


def test_a_misspelt_counter_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Metrics().messages_recieved = 1  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("reason", DropReason)
def test_a_drop_counts_under_its_reason_and_in_the_total(reason: DropReason) -> None:
    metrics = Metrics()
    metrics.dropped[reason] += 3
    totals = {} if reason is DropReason.REDISPATCHED else {reason.counter.rpartition(".")[0]: 3}
    assert {name: count for name, count in metrics.snapshot().items() if count} == {**totals, reason.counter: 3}


def test_gauges_keep_their_maxima() -> None:
    gauges = Gauges()
    for connected, sessions in ((5, 6), (2, 9), (4, 3)):
        gauges.connections_count = connected
        gauges.sessions_count = sessions
        gauges.note_maxima()
    snapshot = gauges.snapshot()
    assert (snapshot["connections.count"], snapshot["connections.max"]) == (4, 5)
    assert (snapshot["sessions.count"], snapshot["sessions.max"]) == (3, 9)


def test_a_rate_moves_towards_what_happens() -> None:
    rates = Rates(["a"], 100.0)
    rates.update({"a": 50}, 110.0)  # 300 a minute
    assert rates["a", "1min"] == pytest.approx(300 * (1 - exp(-10 / 60)))
    assert rates["a", "5min"] == pytest.approx(300 * (1 - exp(-10 / 300)))
    assert rates["a", "15min"] == pytest.approx(300 * (1 - exp(-10 / 900)))
    rates.update({"a": 50}, 170.0)
    assert rates["a", "1min"] == pytest.approx(300 * (1 - exp(-10 / 60)) * exp(-1))


def test_a_steady_rate_is_reached() -> None:
    rates = Rates(["a", "b"], 0.0)
    for second in range(10, 7200, 10):
        rates.update({"a": second * 7, "b": second, "other": 5}, float(second))
    for window in ("1min", "5min", "15min"):
        assert rates["a", window] == pytest.approx(420, rel=1e-3)
        assert rates["b", window] == pytest.approx(60, rel=1e-3)


def test_no_time_between_two_updates_loses_nothing() -> None:
    rates = Rates(["a"], 0.0)
    rates.update({"a": 10}, 0.0)
    assert rates["a", "1min"] == 0.0
    rates.update({"a": 10}, 60.0)
    assert rates["a", "1min"] == pytest.approx(10 * (1 - exp(-1)))


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20), st.floats(0, 1e4))
@settings(max_examples=50)
def test_irregular_updates_of_a_steady_rate_agree_with_one(steps: list[float], speed: float) -> None:
    often, once = Rates(["a"], 0.0), Rates(["a"], 0.0)
    now = 0.0
    for step in steps:
        now += step
        often.update({"a": now * speed}, now)  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    once.update({"a": now * speed}, now)  # type: ignore[dict-item] # pyright: ignore[reportArgumentType]
    assert often["a", "5min"] == pytest.approx(once["a", "5min"], rel=1e-6, abs=1e-9)
