"""Denied requests and guessed logins: by hand, and against plain Python."""

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import Row, assert_rows, frame, row
from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.alerts import KEY
from trunkline.analytics.jobs.denials import DenialOptions, denials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = plain.SECOND
OPTIONS = DenialOptions(
    window=20, factor=1.5, minimum=3, learning=0.2, calm=40, login_window=15, login_limit=30, name_limit=12
)


def expected() -> list[Row]:
    """Of `plain.recorded`."""
    denied = [
        row
        for row in plain.rows_of("message.dropped", "client.acl_decided")
        if (row["kind"] == "message.dropped" and row["reason"] == "not_authorized")
        or (row["action"] == "subscribe" and not row["flags"] & 64)
    ]
    failed = [row for row in plain.rows_of("client.connack") if row["reason_code"] in (0x86, 0x87, 0x8A, 0x8C)]
    surges = partial(
        plain.surges,
        window=20 * SECOND,
        factor=1.5,
        minimum=3,
        learning=0.2,
        calm=40 * SECOND,
        until=plain.END,
        trusting=False,
    )
    bursts = partial(plain.bursts, window=15 * SECOND, calm=40 * SECOND, until=plain.END)
    peers = plain.grouped(failed, "peer")
    return [
        *plain.alerts("denied", "client", plain.grouped(denied, "client_id"), surges),
        *plain.alerts("denied", "peer", plain.grouped(denied, "peer"), surges),
        *plain.alerts("logins", "peer", peers, partial(bursts, limit=30)),
        *plain.alerts("names", "peer", peers, partial(bursts, limit=12, names=True)),
    ]


def test_spark_tells_what_plain_python_finds(spark: "SparkSession") -> None:
    wanted = expected()
    assert {row["alert"] for row in wanted} == {"denied", "logins", "names"}
    assert {row["scope"] for row in wanted} == {"client", "peer"}
    assert_rows(denials(frame(spark, plain.recorded()), OPTIONS), wanted, KEY)


def test_what_counts_as_denied(spark: "SparkSession") -> None:
    """One alert for each event that counts: the others are of the same client, and come before."""
    who = {"client_id": "c", "peer": "p", "username": "u"}
    events = [
        row("client.acl_decided", 1, action="publish", flags=0, **who),  # the message is dropped, and counted, as well
        row("client.acl_decided", 1, action="subscribe", flags=64, **who),
        row("message.dropped", 1, reason="no_subscribers", **who),
        row("client.connack", 1, reason_code=0, **who),
        row("client.connack", 1, reason_code=0x88, **who),  # the broker cannot: no fault of the client
        row("client.authenticated", 1, reason_code=0x86, **who),  # its CONNACK counts
        row("client.acl_decided", 2, action="subscribe", flags=0, **who),
        row("message.dropped", 183, reason="not_authorized", **who),
        row("client.connack", 4, reason_code=0x86, **who),
        row("client.connack", 5, reason_code=0x87, client_id="c", peer="p"),
        row("message.dropped", 6, reason="not_authorized", client_id="somebody"),
    ]
    options = DenialOptions(minimum=0, calm=0, login_limit=1, name_limit=1, forget=1)
    found = [
        (one.alert, one.subject, one.time.minute * 60 + one.time.second, one["count"])
        for one in denials(frame(spark, events), options).where("state = 'begin'").collect()
    ]
    assert sorted(found) == [
        ("denied", "c", 2, 1),
        ("denied", "c", 183, 1),
        ("denied", "p", 2, 1),
        ("denied", "p", 183, 1),
        ("denied", "somebody", 6, 1),
        ("logins", "p", 5, 2),
        ("names", "p", 5, 2),
    ]
