from typing import Any

import pytest

from trunkline.broker.metrics import LimitKind, Metrics
from trunkline.broker.net.admission import Admission
from trunkline.config.listener_settings import ListenerSettings


def admission(**settings: Any) -> Admission:
    return Admission(ListenerSettings.model_validate(settings), 0, lambda: 0, Metrics().limited)


@pytest.mark.parametrize(
    ("rules", "host", "allowed"),
    [
        ([], "10.0.0.1", True),
        (["deny 10.0.0.1", "allow 10.0.0.0/8", "deny all"], "10.0.0.1", False),
        (["deny 10.0.0.1", "allow 10.0.0.0/8", "deny all"], "10.0.0.2", True),
        (["deny 10.0.0.1", "allow 10.0.0.0/8", "deny all"], "::1", False),
        (["allow 10.0.0.0/8", "deny 10.0.0.1"], "10.0.0.1", True),
        (["deny 127.0.0.0/8"], "::ffff:127.0.0.1", False),
        (["deny 127.0.0.0/8"], "fe80::1%eth0", True),
        (["deny 10.0.0.1"], "no address", True),
        (["deny all"], "no address", False),
    ],
)
def test_the_first_rule_that_matches_decides(rules: list[str], host: str, allowed: bool) -> None:
    assert (not admission(access_rules=rules).refusal((host, 1), 0)) is allowed


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("::ffff:a00:1", "10.0.0.1", "::ffff:a00:2"),
        ("2001:db8::1", "2001:db8:0:0:ffff::1", "2001:db8:0:1::1"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe80:0:0:1::1"),
    ],
)
def test_connections_of_an_address(first: str, same: str, other: str) -> None:
    limited = admission(max_connections_per_address=1)
    limited.enter((first, 1))
    assert limited.refusal_of(same) == "max_connections_per_address is 1"
    assert not limited.refusal_of(other)
    limited.leave((same, 1))
    assert not limited.refusal_of(first)


def test_each_refusal_is_counted() -> None:
    metrics, others = Metrics(), [0]
    settings = {"max_connections": 3, "max_connections_per_address": 1, "access_rules": ["deny 10.0.0.2"]}
    limited = Admission(ListenerSettings.model_validate(settings), 5, lambda: others[0], metrics.limited)
    limited.enter(("10.0.0.1", 1))
    assert not limited.refusal(("10.0.0.3", 1), 1)
    assert not any(metrics.limited.values())
    for peer, connections, on_node, kind in (
        (("10.0.0.3", 1), 3, 0, LimitKind.LISTENER_FULL),
        (("10.0.0.3", 1), 1, 5, LimitKind.NODE_FULL),
        (("10.0.0.1", 1), 1, 0, LimitKind.ADDRESS_FULL),
        (("10.0.0.2", 1), 1, 0, LimitKind.ACCESS_RULES),
    ):
        others[0] = on_node
        assert limited.refusal(peer, connections)
        assert metrics.limited[kind] == 1
    assert sum(metrics.limited.values()) == 4


def test_clients_without_an_address() -> None:
    limited = admission(max_connections=2)
    limited.enter(None)
    limited.leave(None)
    assert not limited.refusal(None, 1)
    assert limited.refusal(None, 2) == "max_connections is 2"
