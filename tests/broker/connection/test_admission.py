from typing import Any

import pytest

from trunkline.broker.connection.admission import Admission
from trunkline.config.listener_settings import ListenerSettings


def admission(**settings: Any) -> Admission:
    return Admission(ListenerSettings.model_validate(settings), 0, lambda: 0)


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


def test_connections_of_an_address() -> None:
    limited = admission(max_connections_per_address=1)
    limited.enter(("::ffff:10.0.0.1", 1))
    assert limited.refusal_of("10.0.0.1") == "max_connections_per_address is 1"
    assert not limited.refusal_of("10.0.0.2")
    limited.leave(("10.0.0.1", 1))
    assert not limited.refusal_of("10.0.0.1")


def test_clients_without_an_address() -> None:
    limited = admission(max_connections=2)
    limited.enter(None)
    limited.leave(None)
    assert not limited.refusal(None, 1)
    assert limited.refusal(None, 2) == "max_connections is 2"
