"""JSAck, as ADR-15 has it."""

import pytest

from trunkline.nats.errors import NotJetStream
from trunkline.nats.protocol.acknowledging import Origin, origin_of

SHORT = "$JS.ACK.orders.billing.2.17.9.1700000000000000001.4"
REST = "orders.billing.2.17.9.1700000000000000001.4"
READ = Origin("orders", "billing", 2, 17, 9, 1_700_000_000_000_000_001, 4)


def test_nine_tokens() -> None:
    assert origin_of(SHORT) == READ


@pytest.mark.parametrize("more", ["", ".x", ".x.y", ".1.2.3"])
def test_eleven_tokens_and_more(more: str) -> None:
    assert origin_of(f"$JS.ACK.hub.HASH.{REST}{more}") == READ._replace(domain="hub")
    assert origin_of(f"$JS.ACK._.HASH.{REST}{more}") == READ


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "does not begin with"),
        ("_INBOX.1.2.3.4.5.6.7.8", "does not begin with"),
        ("$JS.API.orders.billing.2.17.9.1.4", "does not begin with"),
        ("$JS.ACK.orders", "has 3 tokens"),
        ("$JS.ACK.a.b.1.2.3.4", "has 8 tokens"),
        (f"$JS.ACK.hub.{REST}", "has 10 tokens"),
        ("$JS.ACK.a.b.x.2.3.4.5", "something else where numbers are"),
        ("$JS.ACK.a.b.1.2.3.4.", "something else where numbers are"),
        ("$JS.ACK.a.b.1.2.3.4.-1", "something else where numbers are"),
        ("$JS.ACK.a.b.1.2.3.4.\N{SUPERSCRIPT TWO}", "something else where numbers are"),
    ],
)
def test_what_is_none(reply: str, why: str) -> None:
    with pytest.raises(NotJetStream, match=why):
        origin_of(reply)
