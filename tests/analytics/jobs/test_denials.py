"""Denied requests and guessed logins: by hand, and against plain Python."""

from typing import TYPE_CHECKING

import pytest

from tests.analytics.events_made import frame, row
from tests.analytics.jobs import plain

pytest.importorskip("pyspark")

from trunkline.analytics.jobs.denials import DenialOptions, denials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = plain.SECOND


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
