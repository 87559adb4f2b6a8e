"""The same requests to the listener and to two real servers: the answers are the same, but for what is named here."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.asking import Asking, plain
from tests.nats.servers import BROKER, CORE_KINDS, NatsServer, running

if TYPE_CHECKING:
    from collections.abc import Generator

S: dict[str, Any] = {"name": "s", "subjects": ["s.>"]}
C: dict[str, Any] = {"stream_name": "s", "config": {"ack_policy": "explicit"}}


def c(**config: Any) -> dict[str, Any]:
    return {"stream_name": "s", "config": {"ack_policy": "explicit", **config}}


Request = tuple[str, Any]

#: What is asked, one after the other, in a world without streams.
STORIES: dict[str, list[Request]] = {
    "nothing is there": [
        ("STREAM.NAMES", b""),
        ("STREAM.LIST", b""),
        ("STREAM.INFO.s", b""),
        ("STREAM.DELETE.s", b""),
        ("STREAM.PURGE.s", b""),
        ("STREAM.UPDATE.s", S),
        ("STREAM.MSG.GET.s", {"seq": 1}),
        ("STREAM.MSG.DELETE.s", {"seq": 1}),
        ("CONSUMER.CREATE.s", C),
        ("CONSUMER.INFO.s.c", b""),
        ("CONSUMER.DELETE.s.c", b""),
        ("CONSUMER.NAMES.s", b""),
        ("CONSUMER.LIST.s", b""),
    ],
    "a stream": [
        ("STREAM.CREATE.s", S),
        ("STREAM.CREATE.s", S),
        ("STREAM.CREATE.s", S | {"max_msgs": 5}),
        ("STREAM.CREATE.t", {"name": "t", "subjects": ["s.a"]}),
        ("STREAM.CREATE.t", S),
        ("STREAM.CREATE.s", b"{"),
        ("STREAM.INFO.s", b""),
        ("STREAM.NAMES", b""),
        ("STREAM.NAMES", {"subject": "s.x"}),
        ("STREAM.NAMES", {"subject": "x"}),
        ("STREAM.NAMES", {"offset": 5}),
        ("STREAM.LIST", b""),
        ("STREAM.UPDATE.s", S | {"max_msgs": 5, "description": "a stream", "storage": "file"}),
        ("STREAM.UPDATE.s", S | {"storage": "memory"}),
        ("STREAM.UPDATE.s", {"name": "t"}),
        ("STREAM.DELETE.s", b"x"),
        ("STREAM.DELETE.s", b""),
        ("STREAM.DELETE.s", b""),
    ],
    "everything that may be said of a stream": [
        (
            "STREAM.CREATE.s",
            S
            | {
                "retention": "workqueue",
                "max_msgs": 100,
                "max_bytes": 10000,
                "max_age": 10**12,
                "max_msgs_per_subject": 3,
                "max_msg_size": 1000,
                "discard": "new",
                "discard_new_per_subject": True,
                "duplicate_window": 10**10,
                "no_ack": True,
                "deny_delete": True,
                "allow_direct": True,
                "allow_rollup_hdrs": True,
                "storage": "memory",
                "metadata": {"a": "b"},
                "description": "x",
            },
        ),
        ("STREAM.INFO.s", b""),
    ],
    "the subject is its name": [("STREAM.CREATE.s", {"name": "s"}), ("STREAM.INFO.s", b"")],
    "what no stream can be": [
        ("STREAM.CREATE.s", {"name": "s", "num_replicas": 3}),
        ("STREAM.CREATE.s", {"name": "s", "max_age": 1000}),
        ("STREAM.CREATE.s", {"name": "s", "duplicate_window": 10**12, "max_age": 10**11}),
        ("STREAM.CREATE.s", {"name": "s", "retention": "foo"}),
        ("STREAM.CREATE.s", {"name": "s", "storage": 5}),
        ("STREAM.CREATE.s", {"name": "s", "discard_new_per_subject": True}),
        ("STREAM.CREATE.s", {"name": "s", "subjects": ["$JS.API.>"]}),
        ("STREAM.CREATE.s", {"name": "s", "subjects": ["s", "s"]}),
        ("STREAM.CREATE.s", {"name": "s", "allow_rollup_hdrs": True, "deny_purge": True}),
        ("STREAM.CREATE." + "a" * 256, {"name": "a" * 256}),
    ],
    "messages": [
        ("STREAM.CREATE.s", S),
        ("PUB s.0", b"p0"),
        ("PUB s.1", b"p1"),
        ("PUB s.2", b"p2"),
        ("STREAM.INFO.s", b""),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
        ("STREAM.INFO.s", {"subjects_filter": "s.1"}),
        ("STREAM.MSG.GET.s", {"seq": 1}),
        ("STREAM.MSG.GET.s", {"seq": 9}),
        ("STREAM.MSG.GET.s", b""),
        ("STREAM.MSG.GET.s", {}),
        ("STREAM.MSG.GET.s", {"last_by_subj": "s.2"}),
        ("STREAM.MSG.GET.s", {"last_by_subj": "s.7"}),
        ("STREAM.MSG.GET.s", {"seq": 1, "next_by_subj": "s.*"}),
        ("STREAM.MSG.GET.s", {"seq": 1, "last_by_subj": "s.0"}),
        ("STREAM.MSG.DELETE.s", {"seq": 2}),
        ("STREAM.MSG.DELETE.s", {"seq": 2}),
        ("STREAM.MSG.DELETE.s", b""),
        ("STREAM.INFO.s", {"deleted_details": True}),
        ("STREAM.PURGE.s", {"filter": "s.0"}),
        ("STREAM.PURGE.s", {"seq": 2, "keep": 1}),
        ("STREAM.PURGE.s", b"{"),
        ("STREAM.PURGE.s", b""),
        ("STREAM.INFO.s", b""),
    ],
    "what publishers expect": [
        ("STREAM.CREATE.s", S),
        ("PUB s.a", {"Nats-Msg-Id": "1"}),
        ("PUB s.a", {"Nats-Msg-Id": "1"}),
        ("PUB s.a", {"Nats-Expected-Stream": "q"}),
        ("PUB s.a", {"Nats-Expected-Last-Sequence": "7"}),
        ("PUB s.a", {"Nats-Expected-Last-Sequence": "x"}),
        ("PUB s.a", {"Nats-Expected-Last-Subject-Sequence": "9"}),
        ("PUB s.a", {"Nats-Expected-Last-Msg-Id": "z"}),
        ("PUB s.a", {"Nats-Expected-Last-Sequence": "1", "Nats-Expected-Last-Subject-Sequence": "1"}),
        ("PUB s.b", {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-Expected-Stream": "s"}),
        ("PUB s.a", {"Nats-Rollup": "sub"}),
        ("STREAM.INFO.s", b""),
    ],
    "what has no room": [
        ("STREAM.CREATE.s", S | {"max_msg_size": 10, "max_msgs": 2, "discard": "new"}),
        ("PUB s.a", b"x" * 99),
        ("PUB s.a", b"1"),
        ("PUB s.a", b"2"),
        ("PUB s.a", b"3"),
    ],
    "sealed, and not to be deleted from": [
        ("STREAM.CREATE.s", S | {"deny_delete": True, "deny_purge": True}),
        ("PUB s.a", b"1"),
        ("STREAM.MSG.DELETE.s", {"seq": 1}),
        ("STREAM.PURGE.s", b""),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
        ("STREAM.UPDATE.s", S | {"storage": "file", "deny_delete": True, "deny_purge": True, "sealed": True}),
        ("PUB s.a", b"1"),
        ("STREAM.MSG.DELETE.s", {"seq": 1}),
        ("STREAM.PURGE.s", b""),
    ],
    "bytes in memory": [
        ("STREAM.CREATE.s", S | {"storage": "memory", "max_msg_size": 30}),
        ("PUB s.a", b"12"),
        ("PUB s.a", {"A": "b"}),
        ("PUB s.a", {"A": "b" * 30}),
        ("PUB s.a", b"1" * 30),
        ("STREAM.INFO.s", b""),
    ],
    "bytes in a file, as many as there may be": [
        ("STREAM.CREATE.s", S | {"max_bytes": 111}),
        ("PUB s.abcd", b"1"),
        ("PUB s.abcd", b"2"),
        ("PUB s.abcd", b"3"),
        ("STREAM.INFO.s", b""),
        ("PUB s.abcd", b"4"),
        ("STREAM.INFO.s", b""),
        ("PUB s.a", {"A": "b", "Nats-Msg-Id": "17"}),
        ("STREAM.INFO.s", b""),
    ],
    "a roll-up of a subject with wildcards": [
        ("STREAM.CREATE.s", S | {"allow_rollup_hdrs": True}),
        ("PUB s.a.1", b"1"),
        ("PUB s.b.1", b"2"),
        ("PUB s.a.2", b"3"),
        ("PUB s.a.*", {"Nats-Rollup": "sub"}),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
    ],
    "consumers": [
        ("STREAM.CREATE.s", S),
        ("PUB s.a", b"1"),
        ("PUB s.b", b"2"),
        ("CONSUMER.DURABLE.CREATE.s.d", c(durable_name="d")),
        ("CONSUMER.DURABLE.CREATE.s.d", c(durable_name="d")),
        ("CONSUMER.DURABLE.CREATE.s.d", c(durable_name="d", ack_policy="none")),
        ("CONSUMER.DURABLE.CREATE.s.e", c(durable_name="d")),
        ("CONSUMER.DURABLE.CREATE.s.e", c()),
        ("CONSUMER.CREATE.s", c()),
        ("CONSUMER.CREATE.s", c(durable_name="d")),
        ("CONSUMER.CREATE.s.n.s.a", c(name="n", filter_subject="s.a", inactive_threshold=10**11)),
        ("CONSUMER.CREATE.s.n.s.b", c(name="n", filter_subject="s.a")),
        ("CONSUMER.CREATE.s.m", c(name="m", durable_name="o")),
        ("CONSUMER.CREATE.s.k", c(name="l")),
        ("CONSUMER.CREATE.s.k", c(name="l", durable_name="m")),
        ("CONSUMER.CREATE.s.q.s.a", c(name="l", filter_subject="s.a")),
        ("CONSUMER.CREATE.s", c(name="y")),
        ("CONSUMER.CREATE.s", c(name="y", description="z")),
        ("CONSUMER.DURABLE.CREATE.s.o", c(name="l", durable_name="o")),
        ("CONSUMER.CREATE.t", c()),
        ("CONSUMER.INFO.s.n", b""),
        ("CONSUMER.INFO.s.no", b""),
        ("CONSUMER.DELETE.s.n", b""),
        ("CONSUMER.DELETE.s.n", b""),
        ("CONSUMER.DURABLE.CREATE.s.d", c(durable_name="d", max_deliver=5, ack_wait=10**10, description="x")),
        ("CONSUMER.INFO.s.d", b""),
    ],
    "what no consumer can be": [
        ("STREAM.CREATE.s", S),
        ("CONSUMER.CREATE.s", b""),
        ("CONSUMER.CREATE.s", c(deliver_policy="by_start_sequence")),
        ("CONSUMER.CREATE.s", c(opt_start_seq=4)),
        ("CONSUMER.CREATE.s", c(max_waiting=5, deliver_subject="dd")),
        ("CONSUMER.CREATE.s", c(flow_control=True, deliver_subject="dd")),
        ("CONSUMER.CREATE.s", c(idle_heartbeat=10**10)),
        ("CONSUMER.CREATE.s", c(idle_heartbeat=1, deliver_subject="dd")),
        ("CONSUMER.CREATE.s", c(deliver_subject="s.>")),
        ("CONSUMER.CREATE.s", c(deliver_subject="s.a")),
        ("CONSUMER.CREATE.s", c(backoff=[1, 2], max_deliver=1)),
        ("CONSUMER.CREATE.s", c(rate_limit_bps=5)),
    ],
    "a work queue": [
        ("STREAM.CREATE.s", S | {"retention": "workqueue"}),
        ("CONSUMER.CREATE.s", c(ack_policy="none")),
        ("CONSUMER.CREATE.s", c(deliver_policy="new")),
        ("CONSUMER.DURABLE.CREATE.s.a", c(durable_name="a", filter_subject="s.a")),
        ("CONSUMER.DURABLE.CREATE.s.b", c(durable_name="b", filter_subject="s.a")),
    ],
}
#: As only newer servers have it.
NEW_ALONE: dict[str, list[Request]] = {
    "more of consumers": [
        ("STREAM.CREATE.s", S),
        ("CONSUMER.CREATE.s.n", c(name="n", inactive_threshold=10**11)),
        ("CONSUMER.CREATE.s.n", c(name="n", max_deliver=3) | {"action": "create"}),
        ("CONSUMER.CREATE.s.u", c(name="u") | {"action": "update"}),
        ("CONSUMER.CREATE.s", c(filter_subjects=["s.a", "s.b"])),
        ("CONSUMER.CREATE.s", c(filter_subjects=["s.a", "s.b"], filter_subject="s.c")),
        ("CONSUMER.CREATE.s", c(filter_subjects=["s.a", ""])),
        ("CONSUMER.CREATE.s", c(filter_subject="zz")),
        ("CONSUMER.PAUSE.s.n", {"pause_until": "2130-01-01T00:00:00Z"}),
        ("CONSUMER.INFO.s.n", b""),
        ("CONSUMER.PAUSE.s.n", b""),
        ("STREAM.CREATE.t", {"name": "t", "foo": 1}),
    ],
}
M: dict[str, Any] = S | {"allow_msg_ttl": True}
#: What is made of lives of single messages: since 2.11.
NEW_ALONE |= {
    "lives of messages": [
        ("STREAM.CREATE.s", S),
        ("PUB s.a", {"Nats-TTL": "5s"}),
        ("PUB s.a", {"Nats-TTL": "never"}),
        ("PUB s.a", {"Nats-TTL": "x"}),
        ("STREAM.UPDATE.s", M),
        *[
            ("PUB s.a", {"Nats-TTL": text})
            for text in (
                "50s",
                "50",
                "1h",
                "1m30s",
                "90.5s",
                "+50s",
                "1.5m",
                "90000ms",
                "never",
                "Never",
            )
        ],
        *[
            ("PUB s.a", {"Nats-TTL": text})
            for text in ("0", "0s", "-1", "500ms", "999ms", "x", "1d", "1.5", "+5", "-5s", "1e3s", "9999999999h")
        ],
        ("PUB s.a", {"Nats-TTL": "5s", "Nats-Rollup": "sub"}),
        ("PUB s.a", {"Nats-TTL": "50s", "Nats-Msg-Id": "1"}),
        ("PUB s.a", {"Nats-TTL": "x", "Nats-Msg-Id": "1"}),
        ("PUB s.a", {"Nats-TTL": "x", "Nats-Expected-Last-Sequence": "99"}),
        ("PUB s.a", {"Nats-TTL": "x", "Nats-Expected-Stream": "q"}),
        ("STREAM.UPDATE.s", M | {"allow_rollup_hdrs": True}),
        ("PUB s.b", {"Nats-TTL": "1h", "Nats-Rollup": "sub"}),
        ("PUB s.b", {"Nats-TTL": "1h", "Nats-Rollup": "all"}),
        ("STREAM.MSG.GET.s", {"last_by_subj": "s.b"}),
        ("STREAM.UPDATE.s", S | {"allow_rollup_hdrs": True}),
        ("STREAM.INFO.s", b""),
    ],
    "markers of streams": [
        ("STREAM.CREATE.s", S | {"subject_delete_marker_ttl": 10**9}),
        ("STREAM.UPDATE.s", S | {"subject_delete_marker_ttl": 2 * 10**9}),
        ("STREAM.UPDATE.s", M),
        ("STREAM.UPDATE.s", S),
        ("STREAM.CREATE.t", {"name": "t", "subject_delete_marker_ttl": 5 * 10**8}),
        ("STREAM.CREATE.t", {"name": "t", "subject_delete_marker_ttl": -(10**9)}),
        ("STREAM.CREATE.t", {"name": "t", "subject_delete_marker_ttl": 10**9, "deny_purge": True}),
        ("STREAM.CREATE.u", {"name": "u", "subject_delete_marker_ttl": 9 * 10**9, "max_age": 5 * 10**9}),
        ("STREAM.CREATE.m", {"name": "m", "mirror": {"name": "s"}, "subject_delete_marker_ttl": 10**9}),
        ("STREAM.CREATE.m", {"name": "m", "mirror": {"name": "s"}, "allow_msg_ttl": True}),
        ("STREAM.INFO.u", b""),
        ("STREAM.LIST", b""),
    ],
    "what no consumer here has": [
        ("STREAM.CREATE.s", S),
        ("CONSUMER.DURABLE.CREATE.s.d", c(durable_name="d")),
        ("CONSUMER.UNPIN.s.d", {"group": "a"}),
        ("CONSUMER.UNPIN.s.d", {}),
        ("CONSUMER.UNPIN.s.e", {"group": "a"}),
        ("CONSUMER.UNPIN.t.e", {"group": "a"}),
    ],
}
_T: dict[str, Any] = {"name": "t"}
#: The first of these lines makes the streams, the others are about another one, which each of them makes anew.
NEW_ALONE |= {
    "subject transforms": [
        ("STREAM.CREATE.s", S | {"subject_transform": {"src": "s.*.>", "dest": "t.{{wildcard(1)}}.x.>"}}),
        ("PUB s.a.b", b"1"),
        ("PUB s.a", b"2"),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
        ("PUB s.a.b", {"Nats-Expected-Last-Subject-Sequence": "0"}),
        ("PUB s.a.b", {"Nats-Expected-Last-Subject-Sequence": "1"}),
        ("STREAM.UPDATE.s", S | {"storage": "file", "subject_transform": {"src": "s.>", "dest": "u.>"}}),
        ("PUB s.a", b"3"),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
        ("PUB s.a", b"4"),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
    ],
    "transforms that cannot be": [
        ("STREAM.CREATE.s", S | {"subject_transform": {"src": "s.*", "dest": destination}})
        for destination in (
            "t.*",
            "t.>",
            "t.{{wildcard(2)}}",
            "t.{{foo(1)}}",
            "t.{{split(1)}}",
            "t.{{wildcard(x)}}",
            "t.{{wildcard(1,2)}}",
            "t.{{partition(3,9)}}",
            "t b",
            "$JS.API.*",
        )
    ],
    "compression": [
        ("STREAM.CREATE.s", S | {"compression": "s2"}),
        ("PUB s.a", b"x" * 1000),
        ("STREAM.INFO.s", b""),
        ("STREAM.MSG.GET.s", {"seq": 1}),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
        ("STREAM.CREATE.t", {"name": "t", "compression": "zip"}),
        ("STREAM.CREATE.t", {"name": "t", "compression": "none"}),
    ],
    "republishing": [
        ("STREAM.CREATE.s", S | {"republish": {"src": "s.>", "dest": "s.bar.>"}}),
        ("STREAM.CREATE.s", S | {"republish": {"src": "s.>", "dest": ">"}}),
        ("STREAM.CREATE.s", S | {"republish": {"src": "s.>", "dest": "bar"}}),
        ("STREAM.CREATE.s", S | {"republish": {"src": "s..a", "dest": "bar"}}),
        ("STREAM.CREATE.s", S | {"republish": {"dest": "bar.>"}}),
        ("STREAM.INFO.s", b""),
        ("STREAM.UPDATE.s", S | {"storage": "file", "republish": {"src": "s.*", "dest": "b.$1", "headers_only": True}}),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
    ],
    "mirrors": [
        ("STREAM.CREATE.s", S),
        *[(f"PUB s.{number}", b"x") for number in range(5)],
        ("STREAM.MSG.DELETE.s", {"seq": 3}),
        ("STREAM.CREATE.t", _T | {"mirror": {"name": "s"}}),
        ("UNTIL t", 4),
        ("STREAM.INFO.t", b""),
        ("PUB s.6", b"x"),
        ("UNTIL t", 5),
        ("STREAM.PURGE.s", b""),
        ("PUB s.7", b"x"),
        ("UNTIL t", 6),
        ("STREAM.MSG.GET.t", {"seq": 1}),
        ("PUB t", b"x"),
        ("STREAM.UPDATE.t", _T | {"storage": "file", "mirror": {"name": "u"}}),
        ("STREAM.UPDATE.t", _T | {"storage": "file", "mirror": {"name": "s"}, "description": "d"}),
        ("STREAM.UPDATE.t", _T | {"storage": "file"}),
        ("PUB t", b"x"),
        ("STREAM.INFO.t", b""),
        ("STREAM.UPDATE.t", _T | {"storage": "file", "mirror": {"name": "s"}}),
    ],
    "mirrors that cannot be": [
        ("STREAM.CREATE.s", S),
        *[
            ("STREAM.CREATE.t", _T | settings)
            for settings in (
                {"mirror": {"name": "s"}, "subjects": ["t"]},
                {"mirror": {"name": "s"}, "sources": [{"name": "s"}]},
                {"mirror": {"name": "s"}, "first_seq": 5},
                {"mirror": {"name": "t"}},
                {"mirror": {"name": ""}},
                {"mirror": {"name": "s.x"}},
                {"mirror": {"name": "s", "filter_subject": "s..x"}},
                {"mirror": {"name": "s", "filter_subject": "s", "subject_transforms": [{"src": "s.>", "dest": "x.>"}]}},
                {
                    "mirror": {
                        "name": "s",
                        "subject_transforms": [{"src": "s.>", "dest": "x.>"}, {"src": "s.1", "dest": "y"}],
                    }
                },
                {"mirror": {"name": "s", "subject_transforms": [{"src": "s.*", "dest": "x.*"}]}},
                {"mirror_direct": True},
            )
        ],
    ],
    "sources": [
        ("STREAM.CREATE.s", S),
        *[(f"PUB s.{number}", {"Nats-Msg-Id": f"{number}"}) for number in range(5)],
        ("STREAM.CREATE.u", {"name": "u", "subjects": ["u"]}),
        ("PUB u", {"Nats-Msg-Id": "0"}),
        ("STREAM.CREATE.a", {"name": "a", "sources": [{"name": "s", "opt_start_seq": 3}], "first_seq": 50}),
        ("UNTIL a", 3),
        ("STREAM.INFO.a", b""),
        ("STREAM.CREATE.b", {"name": "b", "sources": [{"name": "s"}, {"name": "u"}], "subjects": ["b.>"]}),
        ("UNTIL b", 6),
        ("PUB b.x", b"own"),
        ("STREAM.UPDATE.b", {"name": "b", "storage": "file", "sources": [{"name": "u"}], "subjects": ["b.>"]}),
        (
            "STREAM.UPDATE.b",
            {"name": "b", "storage": "file", "sources": [{"name": "u"}, {"name": "s"}], "subjects": ["b.>"]},
        ),
        ("PUB s.9", b"x"),
        ("UNTIL b", 8),
        (
            "STREAM.CREATE.c",
            {
                "name": "c",
                "sources": [
                    {"name": "s", "subject_transforms": [{"src": "s.1", "dest": "x"}, {"src": "s.2", "dest": ""}]}
                ],
                "subject_transform": {"src": "x", "dest": "y"},
            },
        ),
        ("UNTIL c", 2),
        ("STREAM.CREATE.d", {"name": "d", "sources": [{"name": "s"}], "max_msgs": 2, "discard": "new"}),
        ("UNTIL d", 2),
        ("STREAM.PURGE.d", b""),
        ("UNTIL d", 2),
    ],
    "sources that cannot be": [
        ("STREAM.CREATE.s", S),
        *[
            ("STREAM.CREATE.t", _T | settings)
            for settings in (
                {"sources": [{"name": "s"}, {"name": "s"}]},
                {"sources": [{"name": "t"}]},
                {"sources": [{"name": ""}]},
                {"sources": [{"name": "s"}], "subjects": ["s.>"]},
                {
                    "sources": [
                        {"name": "s", "filter_subject": "s.1", "subject_transforms": [{"src": "s.>", "dest": "x.>"}]}
                    ]
                },
                {
                    "sources": [
                        {
                            "name": "s",
                            "subject_transforms": [{"src": "s.>", "dest": "x.>"}, {"src": "s.1", "dest": "y"}],
                        }
                    ]
                },
                {"sources": [{"name": "s", "subject_transforms": [{"src": "s.*", "dest": "x.{{foo(1)}}"}]}]},
            )
        ],
    ],
}
_A: dict[str, Any] = S | {"allow_atomic": True}


def b(sequence: int | str, commit: str = "", name: str = "x", **headers: str) -> dict[str, str]:
    """Headers of a message of a batch."""
    said = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(sequence)}
    if commit:
        said["Nats-Batch-Commit"] = commit
    return said | {f"Nats-{key.replace('_', '-')}": value for key, value in headers.items()}


_LAST = "Expected_Last_Subject_Sequence"
#: Atomic batches, since 2.12.
NEW_ALONE |= {
    "batches where there are none": [
        ("STREAM.CREATE.s", S),
        *[
            ("PUB s.a", each)
            for each in (b(1), b(""), b(1, "1"), {"Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "x"})
        ],
        ("PUB s.a", b(1, Required_Api_Level="99")),
        ("STREAM.INFO.s", b""),
    ],
    "batches": [
        ("STREAM.CREATE.s", _A),
        ("PUB s.a", b(1)),
        ("PUB s.b", b(2)),
        ("STREAM.INFO.s", b""),
        ("PUB s.a", b(3, "1")),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
        ("STREAM.MSG.GET.s", {"seq": 3}),
        ("PUB s.a", b(4)),
        ("PUB s.a", b(1, "1")),
        ("PUB s.a", b(1, "eob")),
        ("PUB s.a", b(1)),
        ("PUB s.a", b(2, "eob", TTL="x", Expected_Last_Sequence="99")),
        ("PUB s.a", b(1, "1", Required_Api_Level="2")),
        ("PUB s.a", b(1, name="a b")),
        ("PUB s.a", b(2, "1", name="a b")),
        ("STREAM.INFO.s", b""),
    ],
    "sequences of batches": [
        ("STREAM.CREATE.s", _A),
        *[("PUB s.a", b(sequence)) for sequence in ("", "x", "0", "-1", "01", "2", "2", "3", 1, 3, 2, 1, 1, 1, 2)],
        ("PUB s.a", b(3, "1")),
        *[("PUB s.a", b(1, commit)) for commit in ("0", "2", "true", "EOB")],
        ("PUB s.a", b(1)),
        ("PUB s.a", b(2, "x")),
        ("PUB s.a", b(2, "1")),
        ("PUB s.a", b(1)),
        ("PUB s.a", b(3, "1")),
        ("PUB s.a", b(1)),
        ("PUB s.a", b(2, Required_Api_Level="99")),
        ("PUB s.a", b(2, "1")),
        ("PUB s.a", b(1, name="i" * 64)),
        ("PUB s.a", b(1, name="i" * 65)),
        ("STREAM.INFO.s", b""),
    ],
    "long batches": [
        ("STREAM.CREATE.s", _A),
        *[("PUB s.a", b(number)) for number in range(1, 1000)],
        ("PUB s.a", b(1000, "1")),
        *[("PUB s.a", b(number)) for number in range(1, 1001)],
        ("PUB s.a", b(1001, "eob")),
        *[("PUB s.a", b(number)) for number in range(1, 1001)],
        ("PUB s.a", b(1001, "1")),
        ("PUB s.a", b(1002, "1")),
        ("STREAM.INFO.s", b""),
    ],
    "many batches": [
        ("STREAM.CREATE.s", _A),
        ("STREAM.CREATE.t", {"name": "t", "allow_atomic": True}),
        *[("PUB s.a", b(1, name=f"{number}")) for number in range(52)],
        ("PUB s.a", b(1, "1", name="52")),
        ("PUB t", b(2, name="1")),
        ("PUB t", b(1, name="1")),
        ("PUB s.a", b(2, "1", name="1")),
        ("PUB s.a", b(1, name="52")),
        ("PUB t", b(2, "1", name="1")),
    ],
    "what publishers of batches expect": [
        ("STREAM.CREATE.s", _A),
        ("PUB s.a", b(1, Expected_Last_Sequence="0", Expected_Stream="s")),
        ("PUB s.a", b(2, "1")),
        *[
            (f"PUB {subject}", headers)
            for first, second, subject in (
                ({"Expected_Last_Sequence": "1"}, {}, "s.b"),
                ({"Expected_Last_Sequence": "x"}, {}, "s.b"),
                ({}, {"Expected_Last_Sequence": "2"}, "s.b"),
                ({}, {"Expected_Last_Sequence": "3"}, "s.b"),
                ({"Expected_Stream": "q"}, {}, "s.b"),
                ({}, {"Expected_Last_Msg_Id": "1"}, "s.b"),
                ({}, {"Expected_Last_Msg_Id": ""}, "s.z"),
                ({_LAST: "1"}, {}, "s.b"),
                ({_LAST: "2"}, {_LAST: "2"}, "s.a"),
                ({}, {_LAST: "2"}, "s.a"),
                ({_LAST: "2"}, {_LAST: "0"}, "s.b"),
                ({f"{_LAST}_Subject": "s.b"}, {}, "s.b"),
                ({}, {_LAST: "4", f"{_LAST}_Subject": "s.b"}, "s.c"),
                ({}, {_LAST: "3", f"{_LAST}_Subject": "s.a"}, "s.c"),
                ({}, {_LAST: "6", f"{_LAST}_Subject": "s.>"}, "s.c"),
                ({"Incr": "1"}, {}, "s.b"),
                ({"Schedule": "@at 2130-01-01T00:00:00Z", "Schedule_Target": "s.z"}, {}, "s.b"),
                ({"Expected_Last_Sequence": "9", "TTL": "5s"}, {}, "s.b"),
                ({"Expected_Last_Sequence": "9"}, {"Expected_Stream": "q"}, "s.b"),
            )
            for subject, headers in (("s.a", b(1, **first)), (subject, b(2, "1", **second)))
        ],
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
    ],
    "ids, lives and roll-ups in batches": [
        ("STREAM.CREATE.s", _A | {"allow_msg_ttl": True, "allow_rollup_hdrs": True}),
        *[
            (f"PUB {subject}", headers)
            for first, second, subject in (
                ({"Msg_Id": "1"}, {"Msg_Id": "2"}, "s.a"),
                ({"Msg_Id": "3"}, {"Msg_Id": "3"}, "s.a"),
                ({"Msg_Id": "1"}, {}, "s.a"),
                ({}, {"Msg_Id": "1"}, "s.a"),
                ({"Msg_Id": "3"}, {"Msg_Id": "4"}, "s.a"),
                ({"TTL": "x"}, {}, "s.a"),
                ({"TTL": "1h"}, {"TTL": "never"}, "s.a"),
                ({"Rollup": "sub"}, {}, "s.a"),
                ({}, {"Rollup": "sub"}, "s.a"),
                ({}, {"Rollup": "all"}, "s.b"),
                ({}, {"Rollup": "sub"}, "s.b"),
                ({"Rollup": "sub"}, {"Rollup": "sub"}, "s.b"),
                ({}, {"Rollup": "sub"}, "s.*"),
                ({"Rollup": "all"}, {}, "s.b"),
            )
            for subject, headers in (("s.a", b(1, **first)), (subject, b(2, "1", **second)))
        ],
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
        ("STREAM.UPDATE.s", _A),
        ("PUB s.a", b(1, "1", TTL="5s")),
        ("PUB s.a", b(1, "1", Rollup="sub")),
    ],
    "batches that have no room": [
        ("STREAM.CREATE.s", _A | {"max_msgs": 3, "discard": "new", "max_msg_size": 100}),
        *[("PUB s.a", b(number)) for number in (1, 2, 3)],
        ("PUB s.a", b(4, "1")),
        ("PUB s.a", b(1)),
        ("PUB s.a", b(2, x="y" * 200)),
        ("PUB s.a", b(2)),
        ("PUB s.a", b(3, "1")),
        ("PUB s.a", b(1, "1")),
        ("STREAM.INFO.s", b""),
        ("STREAM.CREATE.t", {"name": "t", "allow_atomic": True, "max_bytes": 300, "discard": "new"}),
        *[("PUB t", b(number)) for number in (1, 2, 3)],
        ("PUB t", b(4, "1")),
        ("STREAM.CREATE.u", {"name": "u", "allow_atomic": True, "max_msgs": 2}),
        *[("PUB u", b(number)) for number in (1, 2, 3)],
        ("PUB u", b(4, "1")),
        ("STREAM.INFO.u", b""),
        (
            "STREAM.CREATE.v",
            {
                "name": "v",
                "subjects": ["v.*"],
                "allow_atomic": True,
                "max_msgs_per_subject": 1,
                "discard": "new",
                "discard_new_per_subject": True,
            },
        ),
        *[(f"PUB v.{subject}", b(number, commit)) for subject, number, commit in (("1", 1, ""), ("1", 2, "1"))],
        *[(f"PUB v.{subject}", b(number, commit)) for subject, number, commit in (("1", 1, ""), ("2", 2, "1"))],
        ("STREAM.INFO.v", b""),
    ],
    "streams that change while a batch is open": [
        ("STREAM.CREATE.s", _A | {"storage": "file"}),
        ("PUB s.a", b(1)),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
        ("PUB s.a", b(2, "1")),
        ("STREAM.UPDATE.s", _A | {"storage": "file"}),
        ("PUB s.a", b(2, "1")),
        ("PUB s.a", b(1)),
        ("STREAM.UPDATE.s", _A | {"storage": "file", "sealed": True, "deny_delete": True, "deny_purge": True}),
        ("PUB s.a", b(2, "1")),
        ("PUB s.a", b(1)),
    ],
    "batches under other subjects": [
        ("STREAM.CREATE.s", _A | {"subject_transform": {"src": "s.*", "dest": "t.{{wildcard(1)}}"}}),
        ("PUB s.a", b(1, **{_LAST: "0"})),
        ("PUB s.b", b(2, "1")),
        ("PUB s.a", b(1, **{_LAST: "1"})),
        ("PUB s.b", b(2, "1")),
        ("STREAM.INFO.s", {"subjects_filter": ">"}),
    ],
    "when a server writes": [
        ("STREAM.CREATE.s", S | {"persist_mode": "async"}),
        ("STREAM.INFO.s", b""),
        ("STREAM.UPDATE.s", S | {"storage": "file"}),
        ("STREAM.UPDATE.s", S | {"storage": "file", "persist_mode": "default"}),
        ("STREAM.UPDATE.s", S | {"storage": "file", "persist_mode": "async", "description": "d"}),
        ("STREAM.CREATE.t", {"name": "t", "persist_mode": "async", "allow_atomic": True}),
        ("STREAM.CREATE.t", {"name": "t", "persist_mode": "async", "storage": "memory"}),
        ("STREAM.CREATE.t", {"name": "t", "persist_mode": "x"}),
        ("STREAM.CREATE.t", {"name": "t", "persist_mode": "default"}),
        ("STREAM.UPDATE.t", {"name": "t", "storage": "file", "persist_mode": "async"}),
        ("STREAM.CREATE.m", {"name": "m", "mirror": {"name": "s"}, "allow_atomic": True}),
    ],
}
#: Where the listener is right to say something else: the request, and the listener's answer without its type.
DIFFERENT: dict[str, list[tuple[Request, dict[str, Any]]]] = {
    "what is not offered": [
        (
            ("STREAM.CREATE.t", {"name": "t", setting: value}),
            {"error": {"code": 500, "err_code": 10052, "description": text}},
        )
        for setting, value, text in (
            ("placement", {"cluster": "C"}, "placement is not offered"),
            ("allow_batched", True, "fast batches are not offered"),
            ("allow_msg_counter", True, "message counters are not offered"),
            ("allow_msg_schedules", True, "message schedules are not offered"),
            ("consumer_limits", {"max_ack_pending": 5}, "limits of all consumers are not offered"),
        )
    ],
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, NatsServer]]:
    with ExitStack() as stack:
        found: dict[str, NatsServer] = {}
        for kind in CORE_KINDS:
            folder = tmp_path_factory.mktemp(kind)
            options = () if kind == BROKER else ("-js", "-sd", str(folder / "js"))
            found[kind] = stack.enter_context(running(kind, folder, *options))
        yield found


#: A server may not hear yet what is published right behind the answer that a stream is made: clients try again.
MOST_TRIES = 1000


def told(server: NatsServer, story: list[Request]) -> list[Any]:
    with closing(Asking(server)) as asking:
        for name in asking.api("STREAM.NAMES")["streams"] or ():
            asking.api(f"STREAM.DELETE.{name}")
        tries = 1 if server.kind == BROKER else MOST_TRIES
        return [plain(_answer(asking, tries, *request)) for request in story]


def _answer(asking: Asking, tries: int, what: str, payload: Any) -> Any:
    if what.startswith("UNTIL "):  # a stream that follows another one has so many messages
        while (said := asking.api(f"STREAM.INFO.{what[6:]}", {"subjects_filter": ">"}))["state"]["messages"] < payload:
            pass
        return said["state"]
    if not what.startswith("PUB "):
        said = _asked(asking, tries, what, payload)
        if what.startswith(("STREAM.CREATE", "STREAM.UPDATE")) and {"mirror", "sources"} & said.keys():
            return {"config": said["config"]}  # how far it is by now is a matter of chance
        return said
    headers, data = (payload, b"x") if isinstance(payload, dict) else (None, payload)
    for _ in range(tries):
        got = asking.ask(what[4:], data, headers)
        if got.status != "503":
            return got.json if got.payload else None
    return got.status


#: A server may still be removing the files of a deleted stream when one of that name is made: clients try again.
STORE_NOT_READY = 10049


def _asked(asking: Asking, tries: int, what: str, payload: Any) -> Any:
    for _ in range(tries):
        said = asking.api(what, payload)
        if said.get("error", {}).get("err_code") != STORE_NOT_READY:
            break
    return said


def comparable(answer: Any, *, with_texts: bool) -> Any:
    """The numbers of errors are compared everywhere; where the words are Go's own, only these."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return answer
    return error if with_texts else (error["code"], error["err_code"])


#: Errors whose text has words of Go's parser, of its log of streams, or of ours.
OWN_WORDS = {10025, 10052, 10012, 10057, 10038, 10003}


def same(ours: Any, theirs: Any) -> bool:
    error = theirs.get("error") if isinstance(theirs, dict) else None
    with_texts = error is not None and error["err_code"] not in OWN_WORDS
    return comparable(ours, with_texts=with_texts) == comparable(theirs, with_texts=with_texts)


@pytest.mark.parametrize("name", STORIES)
def test_stories(servers: dict[str, NatsServer], name: str) -> None:
    story = STORIES[name]
    answers = {kind: told(server, story) for kind, server in servers.items()}
    for number, request in enumerate(story):
        ours, new, old = (answers[kind][number] for kind in (BROKER, "new", "old"))
        assert same(ours, new) or same(ours, old), (
            f"{request}\nours {json.dumps(ours)}\n new {json.dumps(new)}\n old {json.dumps(old)}"
        )


@pytest.mark.parametrize("subject", ["$JS.x", "$JS.API.STREAM.PURGE.s", "$JS.ACK.s.d.1.1.1.1.1"])
def test_what_is_pushed_below_the_prefix_of_jetstream(servers: dict[str, NatsServer], subject: str) -> None:
    for kind, server in servers.items():
        told(server, [("STREAM.CREATE.s", S), ("PUB s.a", b"1")])
        with closing(Asking(server)) as asking:
            config = {"durable_name": "p", "deliver_subject": subject, "ack_policy": "none"}
            made = asking.api("CONSUMER.DURABLE.CREATE.s.p", {"stream_name": "s", "config": config})
            assert made["config"]["deliver_subject"] == subject, kind
            assert asking.api("CONSUMER.INFO.s.p")["delivered"]["consumer_seq"] == 0, kind
            asking.say(f"SUB {subject} 2".encode())
            assert asking.came()[0] == "s.a", kind
            assert asking.api("STREAM.INFO.s")["state"]["messages"] == 1, kind


@pytest.mark.parametrize("name", NEW_ALONE)
def test_stories_of_newer_servers(servers: dict[str, NatsServer], name: str) -> None:
    story = NEW_ALONE[name]
    answers = {kind: told(servers[kind], story) for kind in (BROKER, "new")}
    for request, ours, new in zip(story, answers[BROKER], answers["new"], strict=True):
        assert same(ours, new), f"{request}\nours {json.dumps(ours)}\n new {json.dumps(new)}"


#: What a stream keeps of one message at most for each topic, so that no life is made longer.
ONE_EACH: dict[str, Any] = {"max_msgs_per_subject": 1, "subject_delete_marker_ttl": 60 * 10**9}
#: Streams, by the subjects of the messages that they get: with these headers each.
LIVES: dict[str, tuple[dict[str, Any], list[tuple[str, dict[str, str]]]]] = {
    "own": ({"allow_msg_ttl": True}, [("1", {"Nats-TTL": "1s"}), ("2", {}), ("3", {"Nats-TTL": "1h"})]),
    "aged": (
        {"allow_msg_ttl": True, "max_age": 10**9, "duplicate_window": 10**9},
        [("1", {"Nats-TTL": "never"}), ("2", {"Nats-TTL": "1h"}), ("3", {}), ("4", {"Nats-TTL": "NEVER"})],
    ),
    "marked": (
        ONE_EACH,
        [
            ("1", {"Nats-TTL": "1s", "a": "b"}),
            ("2", {}),
            ("3", {"Nats-TTL": "1s"}),
            ("3", {"Nats-TTL": "1h"}),
            ("4", {"Nats-TTL": "1s", "Nats-Marker-Reason": "Mine"}),
            ("5", {"Nats-TTL": "1s", "KV-Operation": "DEL"}),
        ],
    ),
    "agedmarked": (
        {"max_age": 10**9, "duplicate_window": 10**9, "subject_delete_marker_ttl": 3670 * 10**9 + 5},
        [("1", {}), ("1", {}), ("2", {"Nats-TTL": "never"})],
    ),
    "limited": (ONE_EACH | {"max_msgs": 2}, [("1", {}), ("2", {}), ("2", {}), ("3", {}), ("4", {})]),
    "queue": (ONE_EACH | {"retention": "workqueue"}, [("1", {"Nats-TTL": "1s"})]),
    "unwanted": (ONE_EACH | {"retention": "interest"}, [("1", {"Nats-TTL": "1s"})]),
    "full": (ONE_EACH | {"discard": "new", "max_msgs": 1}, [("1", {"Nats-TTL": "1s"})]),
}


def kept(asking: Asking, name: str) -> list[tuple[str, str, bool]]:
    """Subjects, headers and whether there is a payload, of all messages, in their order but for those that came in one
    moment."""
    state = asking.api(f"STREAM.INFO.{name}")["state"]
    found: list[tuple[str, str, bool]] = []
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        message = asking.api(f"STREAM.MSG.GET.{name}", {"seq": sequence}).get("message")
        if message is not None:
            found.append((message["subject"], b64decode(message.get("hdrs", "")).decode(), "data" in message))
    return sorted(found)


def test_what_lives_and_what_is_left_of_it(servers: dict[str, NatsServer]) -> None:
    with ExitStack() as stack:
        askings = {kind: stack.enter_context(closing(Asking(servers[kind]))) for kind in (BROKER, "new")}
        for asking in askings.values():
            for name in asking.api("STREAM.NAMES")["streams"] or ():
                asking.api(f"STREAM.DELETE.{name}")
            for name, (settings, messages) in LIVES.items():
                asking.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **settings})
                for subject, headers in messages:
                    assert _answer(asking, MOST_TRIES, f"PUB {name}.{subject}", headers or b"x")["seq"], name
        deadline = time.monotonic() + 30
        left: dict[str, dict[str, list[tuple[str, str, bool]]]] = {}
        while True:
            for kind, asking in askings.items():
                left[kind] = {name: kept(asking, name) for name in LIVES}
            if left[BROKER] == left["new"] and left["new"]["own"] == [
                ("own.2", "", True),
                ("own.3", "NATS/1.0\r\nNats-TTL: 1h\r\n\r\n", True),
            ]:
                break
            assert time.monotonic() < deadline, json.dumps(left, indent=1)
            for asking in askings.values():
                asking.pinged()
        assert any("Nats-Marker-Reason: MaxAge" in block for _, block, _ in left[BROKER]["agedmarked"])


def test_whose_an_open_batch_is_and_who_sees_it(servers: dict[str, NatsServer]) -> None:
    """A server sends its subscribers what may never be in the stream, and has batches of nobody's own."""
    for kind in (BROKER, "new"):
        told(servers[kind], [("STREAM.CREATE.s", _A), ("PUB s.a", b"x")])
        with closing(Asking(servers[kind])) as asking, closing(Asking(servers[kind])) as other:
            other.say(b"UNSUB 1", b"SUB s.> 2")
            other.pinged()
            assert asking.ask("s.a", b"1", b(1)).payload == b"", kind
            if kind != BROKER:
                assert other.came().payload == b"1"
            other.pinged()
            other.say(b"UNSUB 2", b"SUB r.> 1")
            said = other.ask("s.a", b"2", b(2, "1")).json
            assert said.get("seq") == (0 if kind == BROKER else 3), kind
            assert said.get("error", {}).get("err_code") == (10176 if kind == BROKER else None), kind


#: Of direct gets: what may be beside a subject, what may not, and what is no request.
BESIDE_SUBJECT = [
    b"",
    b"{}",
    b"null",
    b'{"seq": 0, "batch": 0, "multi_last": [], "last_by_subj": ""}',
    b'{"max_bytes": 5}',
    b'{"seq": 1}',
    b'{"last_by_subj": "s.a"}',
    b'{"next_by_subj": "s.b"}',
    b'{"multi_last": ["s.>"]}',
    b'{"start_time": "2020-01-01T00:00:00Z"}',
    b'{"batch": 2}',
    b'{"up_to_seq": 5}',
    b'{"up_to_time": "2020-01-01T00:00:00Z"}',
    b"{",
    b"[]",
    b'"x"',
]


def test_direct_gets(servers: dict[str, NatsServer]) -> None:
    def ask(kind: str) -> list[tuple[bytes, str, str, bytes]]:
        config = {"name": "direct", "subjects": ["s.>"], "allow_direct": True}
        told(servers[kind], [("STREAM.CREATE.direct", config), ("PUB s.a", b"1")])
        found: list[tuple[bytes, str, str, bytes]] = []
        with closing(Asking(servers[kind])) as asking:
            for subject in ("", ".s.a", ".s.no"):
                for asked in BESIDE_SUBJECT:
                    if subject or b"multi_last" not in asked:  # which is answered several times
                        answer = asking.ask(f"$JS.API.DIRECT.GET.direct{subject}", asked)
                        found.append((asked, subject, answer.status, answer.payload))
        return found

    assert ask(BROKER) == ask("new")


def test_how_many_subjects_one_request_may_ask_for(servers: dict[str, NatsServer]) -> None:
    for kind in (BROKER, "new"):
        config = {"name": "many", "subjects": ["m.>"], "allow_direct": True}
        told(servers[kind], [("STREAM.CREATE.many", config), *[(f"PUB m.{n}", b"1") for n in range(1025)]])
        with closing(Asking(servers[kind])) as asking:

            def answers(asked: list[str], asking: Asking = asking) -> tuple[int, str]:
                came = asking.ask("$JS.API.DIRECT.GET.many", {"multi_last": asked})
                count = 0
                while not came.status:
                    count, came = count + 1, asking.came()
                return count, came.status

            asked = [f"m.{n}" for n in range(6000)]
            assert answers(asked[:1024]) == (1024, "204 EOB"), kind
            assert answers(asked[:1025]) == answers(["m.>"]) == (0, "413 Too Many Results"), kind
            assert answers(asked[2000:6000]) == (0, "404 No Results"), kind
            wanted = (1, "204 EOB") if kind == "new" else (0, "413 Too Many Subjects")
            assert answers(asked[1024:6000]) == wanted, kind


#: What is behind `-NAK`, and whether the message comes again at once.
DELAYS: dict[bytes, bool] = {
    b"": True,
    b" 1h": False,
    b"\n60m ": False,
    b"+1h0m.5s": False,
    " 3600000000\N{MICRO SIGN}s".encode(): False,
    b' {"delay": 3600000000000}': False,
    b' {"delay": "1h"}': True,
    b' {"delay": 3.6e12}': True,
    b' {"delay": 3600000000000} x': True,
    b" 1": True,
    b"x": True,
    b" [3600000000000]": True,
    b" 9999999h": True,
}


@pytest.mark.parametrize("kind", CORE_KINDS)
def test_when_it_comes_again(servers: dict[str, NatsServer], kind: str) -> None:
    told(servers[kind], [("STREAM.CREATE.again", {"name": "again"}), ("PUB again", b"1")])
    with closing(Asking(servers[kind])) as asking:
        for number, (behind, at_once) in enumerate(DELAYS.items()):
            config = {"durable_name": f"{number}", "ack_policy": "explicit"}
            asking.api(f"CONSUMER.DURABLE.CREATE.again.{number}", {"stream_name": "again", "config": config})
            pull = f"$JS.API.CONSUMER.MSG.NEXT.again.{number}"
            first = asking.ask(pull, {"batch": 1, "expires": 10 * 10**9})
            assert asking.ask(first.reply, b"-NAK" + behind).payload == b""
            again = asking.ask(pull, {"batch": 1, "no_wait": True})
            assert again.status == ("" if at_once else "404 No Messages"), behind


def test_who_gets_what_a_stream_refuses(servers: dict[str, NatsServer]) -> None:
    """Whoever subscribes, as if there were no stream. One without acknowledgements does not say that it refuses."""
    full = {"max_msgs": 1, "max_msg_size": 80, "discard": "new"}
    sent: list[tuple[str, bytes, dict[str, str]]] = [
        ("a", b"full", {}),
        ("a", b"large" * 20, {}),
        ("a", b"", {"Nats-Expected-Last-Sequence": "9"}),
        ("a", b"", {"Nats-Expected-Last-Subject-Sequence": "9"}),
        ("a", b"", {"Nats-Expected-Stream": "other"}),
        ("a", b"", {"Nats-Rollup": "sub"}),
        ("*", b"", {"Nats-Rollup": "sub"}),
    ]
    streams = [{"name": name, "subjects": [f"{name}.>"], **full} for name in ("full", "quiet")]
    heard: dict[str, list[tuple[str, bytes, bytes]]] = {}
    said: dict[str, list[int]] = {}
    for kind, server in servers.items():
        told(
            server,
            [
                ("STREAM.CREATE.full", streams[0]),
                ("STREAM.CREATE.quiet", streams[1] | {"no_ack": True}),
                ("PUB full.a", b"1"),
            ],
        )
        with closing(Asking(server)) as asking, closing(Asking(server)) as other:
            asking.publish("quiet.a", b"1")
            asking.pinged()
            other.say(b"UNSUB 1", b"SUB full.> 2", b"SUB quiet.> 3")
            other.pinged()
            for token, payload, headers in sent:
                answer = asking.ask(f"full.{token}", payload, headers).json
                said.setdefault(kind, []).append(answer["error"]["err_code"])
                asking.publish(f"full.{token}", payload, "", headers)
                asking.publish(f"quiet.{token}", payload, "r.t", headers)
            asking.pinged()
            assert asking.api("STREAM.INFO.full")["state"]["messages"] == 1, kind
            came = [other.came() for _ in range(3 * len(sent))]
            heard[kind] = [(each.subject, each.block, each.payload) for each in came]
    assert heard[BROKER] == heard["new"] == heard["old"]
    assert said[BROKER] == said["new"] == said["old"]


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_not_the_same(servers: dict[str, NatsServer], name: str) -> None:
    story = [request for request, _ in DIFFERENT[name]]
    for (request, expected), ours in zip(DIFFERENT[name], told(servers[BROKER], story), strict=True):
        assert {key: value for key, value in ours.items() if key != "type"} == expected, request
