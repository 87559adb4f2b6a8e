"""What ADR-15 says to be an error: before anything is asked, and with the consumer that there is."""

from dataclasses import replace
from typing import Any

import pytest

from trunkline.nats.errors import CannotSubscribe
from trunkline.nats.jetstream.checks import Wanted, check_existing, complete
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy
from trunkline.nats.jetstream.replies import ConsumerInfo, SequencePair


def wanted(config: ConsumerConfig | None = None, **values: Any) -> Wanted:
    values = {"subject": "orders.new"} | values
    return Wanted(config=config or ConsumerConfig(), is_configured=config is not None, **values)


def info(*, push_bound: bool = False, durable: str = "billing", **config: Any) -> ConsumerInfo:
    return ConsumerInfo(
        stream="orders",
        name="billing",
        config=ConsumerConfig(durable=durable, **config),
        delivered=SequencePair(),
        ack_floor=SequencePair(),
        push_bound=push_bound,
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (wanted(subject=""), "neither a subject nor a stream"),
        (wanted(ConsumerConfig(idle_heartbeat=5), queue="q"), "heartbeats"),
        (wanted(ConsumerConfig(flow_control=True), queue="q"), "flow control"),
        (wanted(ConsumerConfig(ack_policy=AckPolicy.NONE), is_pull=True), "cannot be 'none'"),
        (wanted(ConsumerConfig(ack_policy=AckPolicy.ALL), is_pull=True), "cannot be 'all'"),
        (wanted(ConsumerConfig(ack_policy="none"), is_pull=True), "cannot be 'none'"),
        (wanted(ConsumerConfig(ack_policy="all"), is_pull=True), "cannot be 'all'"),
        (wanted(queue="q", is_pull=True), "have no queue"),
        (wanted(ConsumerConfig(deliver_subject="d"), is_pull=True), "deliver_subject is for messages that are pushed"),
        (wanted(ConsumerConfig(flow_control=True), is_pull=True), "flow_control is for"),
        (wanted(ConsumerConfig(idle_heartbeat=1), is_pull=True), "idle_heartbeat is for"),
        (wanted(ConsumerConfig(deliver_group="g"), is_pull=True), "deliver_group is for"),
        (wanted(ConsumerConfig(rate_limit=1), is_pull=True), "rate_limit is for"),
        (wanted(ConsumerConfig(deliver_group="g"), queue="q"), "'g' is not the queue 'q'"),
        (wanted(ConsumerConfig(deliver_group="g")), "'g' is not the queue ''"),
        (wanted(ConsumerConfig(filter_subject="other")), "two subjects"),
        (wanted(ConsumerConfig(filter_subjects=("other",))), "and filters"),
        (wanted(ConsumerConfig(durable="d"), consumer="c"), "two consumers are named, 'c' and 'd'"),
        (wanted(ConsumerConfig(name="d"), consumer="c"), "two consumers are named, 'c' and 'd'"),
    ],
    ids=str,
)
def test_what_contradicts_itself(asked: Wanted, words: str) -> None:
    with pytest.raises(CannotSubscribe, match=words):
        complete(asked)


def test_what_follows_from_what_is_said() -> None:
    plain = complete(wanted())
    assert (plain.name, plain.config.filter_subject, plain.config.deliver_group) == ("", "orders.new", "")
    group = complete(wanted(queue="q"))
    assert (group.name, group.config.durable, group.config.deliver_group) == ("q", "q", "q")
    named = complete(wanted(ConsumerConfig(durable="d"), queue="q"))
    assert (named.name, named.config.durable, named.config.deliver_group) == ("d", "d", "q")
    bound = complete(wanted(consumer="c", queue="q"))
    assert (bound.name, bound.config.durable) == ("c", "")
    assert complete(wanted(ConsumerConfig(name="n"))).name == "n"
    filtered = complete(wanted(ConsumerConfig(filter_subject="orders.old"), subject="", stream="s"))
    assert filtered.config.filter_subject == "orders.old"
    assert complete(wanted(ConsumerConfig(filter_subject="orders.new"))).config.filter_subject == "orders.new"


PUSHED = {"deliver_subject": "d"}


@pytest.mark.parametrize(
    ("found", "asked", "words"),
    [
        (info(push_bound=True, **PUSHED), wanted(), "duplicate subscription"),
        (info(deliver_group="g", **PUSHED), wanted(), "queue group 'g', and the subscription has no queue"),
        (info(deliver_group="g", **PUSHED), wanted(queue="q"), "queue group 'g', and the queue is 'q'"),
        (info(**PUSHED), wanted(queue="q"), "without a deliver group, and the queue is 'q'"),
        (info(filter_subject="orders.old", **PUSHED), wanted(), "'orders.new' is not what .* has: 'orders.old'"),
        (info(filter_subjects=("a", "b"), **PUSHED), wanted(), "is not what .* has: 'a', 'b'"),
        (info(filter_subject="a"), wanted(is_pull=True), "is not what .* has: 'a'"),
        (info(**PUSHED), wanted(is_pull=True), "are pushed, and cannot be pulled"),
        (info(), wanted(), "are pulled, so a pull subscription is required"),
        (info(deliver_group="q", flow_control=True, **PUSHED), wanted(queue="q"), "flow control"),
        (info(deliver_group="q", idle_heartbeat=5.0, **PUSHED), wanted(queue="q"), "heartbeats"),
        (info(ack_wait=30.0, **PUSHED), wanted(ConsumerConfig(ack_wait=5.0)), "ack_wait is 30.0, not 5.0"),
        # the server would delete it when the program ends, with how far it is
        (info(durable="", **PUSHED), wanted(ConsumerConfig(durable="billing")), "durable is '', not 'billing'"),
        (info(**PUSHED), wanted(ConsumerConfig(max_deliver=2, headers_only=True)), "max_deliver .*; headers_only"),
        (info(ack_policy=AckPolicy.ALL, **PUSHED), wanted(ConsumerConfig()), "ack_policy is 'all', not 'explicit'"),
        (info(deliver_policy=DeliverPolicy.NEW, **PUSHED), wanted(ConsumerConfig()), "deliver_policy is 'new'"),
        (info(metadata={"a": "1"}, **PUSHED), wanted(ConsumerConfig(metadata={"a": "2"})), "metadata"),
        (info(backoff=(1.0,), **PUSHED), wanted(ConsumerConfig(backoff=(2.0,))), "backoff"),
        (info(backoff=(1.0, 2.0), **PUSHED), wanted(ConsumerConfig(backoff=(1.0,))), "backoff"),
        (info(backoff=(1.0, 2.0), **PUSHED), wanted(ConsumerConfig(backoff=(1.0, 3.0))), "backoff"),
        (info(max_waiting=512), wanted(ConsumerConfig(max_waiting=5), is_pull=True), "max_waiting"),
        (info(ack_policy=AckPolicy.ALL, **PUSHED), wanted(ConsumerConfig(ack_policy="none")), "is 'all', not 'none'"),
    ],
    ids=str,
)
def test_a_consumer_that_is_another_one(found: ConsumerInfo, asked: Wanted, words: str) -> None:
    with pytest.raises(CannotSubscribe, match=words):
        check_existing(found, complete(asked))


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        (info(**PUSHED), wanted()),
        (info(filter_subject="orders.new", **PUSHED), wanted()),
        (info(filter_subjects=("a", "orders.new"), **PUSHED), wanted()),
        (info(filter_subject="a", **PUSHED), wanted(subject="", stream="orders")),
        (info(deliver_group="q", push_bound=True, **PUSHED), wanted(queue="q")),
        (info(), wanted(is_pull=True)),
        # words, and what servers put in the place of others
        (info(ack_policy=AckPolicy.ALL, **PUSHED), wanted(ConsumerConfig(ack_policy="all"))),
        (
            info(backoff=(1.0, 2.0), ack_wait=1.0),
            wanted(ConsumerConfig(backoff=(1.0, 2.0), ack_wait=5.0), is_pull=True),
        ),
        (info(backoff=(1.0,)), wanted(ConsumerConfig(backoff=(1.0000000001,)), is_pull=True)),
        (info(max_waiting=512), wanted(ConsumerConfig(max_waiting=-1), is_pull=True)),
        # a deliver subject may change, and what nobody has said anything of may be as it is
        (info(**PUSHED), wanted(ConsumerConfig(deliver_subject="other"))),
        (info(ack_policy=AckPolicy.ALL, deliver_policy=DeliverPolicy.NEW, ack_wait=9.0, **PUSHED), wanted()),
        (info(ack_wait=0.3, max_deliver=-1, **PUSHED), wanted(ConsumerConfig(ack_wait=0.1 + 0.2))),
        (info(start_time=9.0000004, **PUSHED), wanted(ConsumerConfig(start_time=9.0))),
        (info(metadata={"a": "1", "_nats.ver": "2"}, **PUSHED), wanted(ConsumerConfig(metadata={"a": "1"}))),
    ],
    ids=str,
)
def test_a_consumer_that_fits(found: ConsumerInfo, asked: Wanted) -> None:
    check_existing(found, complete(replace(asked, consumer="billing")))
