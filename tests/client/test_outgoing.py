"""Requests of a session: in order, within the window, and once more on the next connection."""

import gc
import weakref

import pytest

from tests.client.rig import PIECES, Rig, publish, shown
from trunkline.client.errors import (
    Disconnected,
    LargerThanServerAccepts,
    NotOffered,
    NotSentAgain,
    PublishesRefused,
    PublishRefused,
    RequestDiscarded,
    SubscribeRefused,
    UnsubscribeRefused,
)
from trunkline.client.outgoing import FIRST_SUBSCRIBE_ID as FIRST
from trunkline.client.outgoing import MAX_DISCARDED, OutgoingHalf
from trunkline.client.requests import PublishRequest, SubscribeRequest, UnsubscribeRequest
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
)
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

VERSIONS = ("5.0", "3.1.1", "3.1")


def subscribe(rig: Rig, *filters: str, qos: int = 1) -> SubscribeRequest:
    request = SubscribeRequest([SubscriptionRequest(each, qos) for each in filters])
    rig.add(request)
    return request


def unsubscribe(rig: Rig, *filters: str) -> UnsubscribeRequest:
    request = UnsubscribeRequest(list(filters))
    rig.add(request)
    return request


def burst(rig: Rig, number: int, qos: int, topic: str = "t") -> PublishRequest:
    request = PublishRequest(topic, [b"%03d" % each for each in range(number)], qos)
    rig.add(request)
    return request


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("version", VERSIONS)
def test_publish_at_each_qos(version: str, pieces: int) -> None:
    rig = Rig(version=version, pieces=pieces)
    rig.open()
    requests = [rig.publish("t", b"x", qos, retain=True) for qos in (0, 1, 2)]
    sent = rig.sent()
    assert [(each.qos, each.packet_id, each.retain) for each in sent if isinstance(each, Publish)] == [
        (0, 0, True),
        (1, 1, True),
        (2, 2, True),
    ]
    assert [each.is_done for each in requests] == [True, False, False]
    rig.give(Puback(1), Pubrec(2))
    assert [each.is_done for each in requests] == [True, True, False]
    assert shown(rig.sent()) == ["PUBREL 2"]
    rig.give(Pubcomp(2))
    assert requests[2].is_done
    assert not rig.outgoing.is_waiting


def test_requests_wait_for_the_connection_in_order() -> None:
    rig = Rig()
    rig.publish()
    subscribe(rig, "a")
    rig.publish(qos=1)
    unsubscribe(rig, "a")
    assert rig.outgoing.queued == 4
    assert shown(rig.open()) == ["PUBLISH", f"SUBSCRIBE {FIRST}", "PUBLISH 1", f"UNSUBSCRIBE {FIRST + 1}"]
    assert rig.outgoing.queued == 0


def test_on_done_is_called_once() -> None:
    rig = Rig()
    request = rig.publish(qos=1)
    calls: list[int] = []
    request.on_done = lambda: calls.append(1)
    rig.open()
    rig.give(Puback(1), Puback(1))
    request.finish(Disconnected("later"))
    assert calls == [1]
    assert request.error is None


def test_the_receive_maximum_of_the_server() -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 2})
    requests = [rig.publish(qos=qos) for qos in (2, 1, 1, 0)]
    assert shown(rig.sent()) == ["PUBLISH 1", "PUBLISH 2"]
    assert rig.outgoing.queued == 2
    rig.give(Pubrec(1))  # which frees nothing
    assert shown(rig.sent()) == ["PUBREL 1"]
    rig.give(Puback(2))
    assert shown(rig.sent()) == ["PUBLISH 3", "PUBLISH"]
    assert [request.is_done for request in requests] == [False, True, False, True]


@pytest.mark.parametrize(
    ("version", "max_inflight", "expected"),
    [("5.0", None, 100), ("5.0", 30, 30), ("5.0", 200, 100), ("3.1.1", None, 20), ("3.1.1", 50, 50)],
)
def test_this_side_may_allow_fewer(version: str, max_inflight: int | None, expected: int) -> None:
    rig = Rig(version=version, max_inflight=max_inflight)
    rig.open(properties={"receive_maximum": 100})
    burst(rig, 300, 1)
    assert len(rig.sent()) == expected


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_burst_goes_through_the_window_in_order(qos: int) -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 7})
    request = burst(rig, 20, qos)
    came: list[bytes] = []
    while not request.is_done or not came:
        packets = rig.sent()
        assert packets or request.is_done
        published = [packet for packet in packets if isinstance(packet, Publish)]
        assert qos == 0 or len(published) <= 7
        came += [packet.payload for packet in published]
        ids = [packet.packet_id for packet in published]
        if qos == 1:
            rig.give(*map(Puback, ids))
        elif qos == 2:
            rig.give(*map(Pubrec, ids))
            assert [name.split()[0] for name in shown(rig.sent())] == ["PUBREL"] * len(ids)
            rig.give(*map(Pubcomp, ids))
    assert came == [b"%03d" % each for each in range(20)]


def test_packet_ids_of_the_two_kinds_never_meet() -> None:
    rig = Rig()
    rig.open()
    used: set[int] = set()
    for _ in range(70):
        request = burst(rig, 1000, 1)
        while not request.is_done:
            ids = [packet.packet_id for packet in rig.sent() if isinstance(packet, Publish)]
            used.update(ids)
            rig.give(*map(Puback, ids))
    assert used == set(range(1, FIRST))
    for _ in range(1030):
        subscribe(rig, "a")
        (packet,) = rig.sent()
        assert isinstance(packet, Subscribe)
        assert packet.packet_id >= FIRST
        rig.give(Suback(packet.packet_id, [1]))


def test_refused_publishes() -> None:
    rig = Rig()
    rig.open()
    one, two, many = rig.publish(qos=1), rig.publish(qos=2), burst(rig, 3, 1)
    rig.sent()
    rig.give(Puback(1, Reason.NOT_AUTHORIZED, {"reason_string": "no"}), Pubrec(2, Reason.QUOTA_EXCEEDED))
    assert isinstance(one.error, PublishRefused)
    assert (one.error.reason, str(one.error)) == (
        0x87,
        "the server refused the message to t: not authorized (0x87), no",
    )
    assert isinstance(two.error, PublishRefused)
    rig.give(Puback(3), Puback(5, Reason.QUOTA_EXCEEDED), Puback(4))
    assert isinstance(many.error, PublishesRefused)
    assert many.error.refused == [(b"002", 0x97)]
    assert rig.sent() == []


def test_no_matching_subscribers_is_a_success() -> None:
    rig = Rig()
    rig.open()
    request = rig.publish(qos=1)
    rig.give(Puback(1, Reason.NO_MATCHING_SUBSCRIBERS))
    assert request.error is None
    assert request.reason == 0x10


@pytest.mark.parametrize("version", VERSIONS)
def test_subscribe_and_unsubscribe(version: str) -> None:
    rig = Rig(version=version)
    rig.open()
    asked, ended = subscribe(rig, "a", "b/#", qos=2), unsubscribe(rig, "c")
    assert rig.sent() == [
        Subscribe(FIRST, [SubscriptionRequest("a", 2), SubscriptionRequest("b/#", 2)]),
        Unsubscribe(FIRST + 1, ["c"]),
    ]
    rig.give(Suback(FIRST, [0, 2]), Unsuback(FIRST + 1, [0x11]))
    assert asked.is_done
    assert asked.error is None
    assert asked.reasons == {"a": 0, "b/#": 2}
    assert ended.is_done
    assert ended.error is None
    assert (asked.reason, ended.reason) == (2, 0x11 if version == "5.0" else 0)


def test_what_was_granted_of_a_refused_request_is_an_orphan() -> None:
    rig = Rig()
    orphans: list[str] = []
    rig.outgoing.on_orphans = orphans.extend
    rig.open()
    request = subscribe(rig, "a", "b")
    rig.give(Suback(FIRST, [1, 0x87]))
    assert isinstance(request.error, SubscribeRefused)
    assert request.error.reasons == {"a": 1, "b": 0x87}
    assert orphans == ["a"]


def test_a_refused_unsubscribe() -> None:
    rig = Rig()
    rig.open()
    request = unsubscribe(rig, "a")
    rig.give(Unsuback(FIRST, [0x87]))
    assert isinstance(request.error, UnsubscribeRefused)
    assert str(request.error) == "the server refused to end the subscription to a: not authorized (0x87)"


@pytest.mark.parametrize(
    "answer",
    [Suback(FIRST, [0, 0]), Unsuback(FIRST, [0]), Suback(9, [0]), Pubrec(1), Pubcomp(1)],
    ids=["too many reasons", "of another kind", "of nothing", "PUBREC of QoS 1", "PUBCOMP of QoS 1"],
)
def test_answers_that_fit_nothing(answer: Suback | Unsuback | Pubrec | Pubcomp) -> None:
    rig = Rig()
    rig.open()
    subscribe(rig, "a")
    rig.publish(qos=1)
    rig.sent()
    rig.give(answer)
    assert isinstance(rig.connection.error, Disconnected)
    assert rig.sent() == [Disconnect(Reason.PROTOCOL_ERROR)]


def test_late_answers_do_no_harm() -> None:
    rig = Rig()
    rig.open()
    rig.publish(qos=2)
    rig.sent()
    rig.give(Puback(9), Puback(10), Pubcomp(9), Pubrec(9), Pubrec(1), Pubrec(1))
    assert shown(rig.sent()) == ["PUBREL 9 0x92", "PUBREL 1", "PUBREL 1"]
    assert rig.connection.error is None


def test_acknowledgements_in_a_row_of_which_some_fit_nothing() -> None:
    rig = Rig()
    rig.open()
    request = burst(rig, 3, 2)
    rig.sent()
    rig.give(Pubrec(1), Pubrec(7), Pubrec(2), Pubrec(3))
    assert shown(rig.sent()) == ["PUBREL 1", "PUBREL 7 0x92", "PUBREL 2", "PUBREL 3"]
    rig.give(Pubcomp(1), Pubcomp(7), Pubcomp(2), Pubcomp(3))
    assert request.is_done


# The next connection


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_was_not_answered_is_sent_again_in_order(version: str, pieces: int) -> None:
    """With the same packet ids, and PUBLISH with DUP; before what is still queued."""
    rig = Rig(version=version)
    rig.open()
    first = rig.publish("first", b"", 1)
    asked = subscribe(rig, "a")
    second = rig.publish("second", b"", 2)
    answered = rig.publish("answered", b"", 1)
    third = rig.publish("third", b"", 2)
    ended = unsubscribe(rig, "a")
    assert len(rig.sent()) == 6
    rig.give(Puback(3), Pubrec(4))
    rig = rig.again(version=version, pieces=pieces)
    rig.publish("queued", b"", 1)
    assert shown(rig.open(session_present=True)) == [
        "PUBREL 4",
        "PUBLISH 1 dup",
        f"SUBSCRIBE {FIRST}",
        "PUBLISH 2 dup",
        f"UNSUBSCRIBE {FIRST + 1}",
        "PUBLISH 5",
    ]
    rig.give(Puback(1), Suback(FIRST, [1]), Pubrec(2), Pubcomp(2), Pubcomp(4), Unsuback(FIRST + 1, [0]))
    requests = (first, asked, second, answered, third, ended)
    assert all(request.is_done and request.error is None for request in requests)


def test_sending_again_keeps_to_the_new_receive_maximum() -> None:
    rig = Rig()
    rig.open()
    request = burst(rig, 4, 1)
    rig.sent()
    rig = rig.again()
    rig.publish(qos=1)
    assert shown(rig.open(session_present=True, properties={"receive_maximum": 3})) == [
        "PUBLISH 1 dup",
        "PUBLISH 2 dup",
        "PUBLISH 3 dup",
    ]
    rig.give(Puback(1))
    assert shown(rig.sent()) == ["PUBLISH 4 dup"]
    rig.give(Puback(2), Puback(3))
    assert shown(rig.sent()) == ["PUBLISH 5"]
    rig.give(Puback(4))
    assert request.is_done


def test_the_rest_of_a_burst_goes_out_on_the_next_connection() -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 2})
    request = burst(rig, 3, 1)
    assert shown(rig.sent()) == ["PUBLISH 1", "PUBLISH 2"]
    rig.give(Puback(1))
    assert shown(rig.sent()) == ["PUBLISH 3"]
    rig = rig.again()
    sent = rig.open(session_present=True)
    assert shown(sent) == ["PUBLISH 2 dup", "PUBLISH 3 dup"]
    assert [packet.payload for packet in sent if isinstance(packet, Publish)] == [b"001", b"002"]
    rig.give(Puback(2), Puback(3))
    assert request.is_done


def test_a_session_that_is_over_fails_all_requests() -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 1})
    requests = [rig.publish(qos=1), subscribe(rig, "a"), rig.publish(qos=1)]
    rig.publish(qos=0)
    error = Disconnected("gone")
    rig.outgoing.fail(error)
    assert [request.error for request in requests] == [error] * 3
    assert not rig.outgoing.is_waiting
    assert rig.outgoing.queued == 0


# What is not sent


def test_abandoned_requests() -> None:
    rig = Rig()
    orphans: list[str] = []
    rig.outgoing.on_orphans = orphans.extend
    queued = rig.publish("never", b"", 1)
    asked = subscribe(rig, "a")
    sent = rig.publish("sent", b"", 1)
    rig.outgoing.abandon(queued)
    rig.outgoing.abandon(queued)
    assert rig.outgoing.queued == 2
    assert shown(rig.open()) == [f"SUBSCRIBE {FIRST}", "PUBLISH 1"]
    rig.outgoing.abandon(sent)
    rig.outgoing.abandon(asked)
    rig.give(Puback(1), Suback(FIRST, [1]))
    assert orphans == ["a"]
    assert not rig.outgoing.is_waiting


def test_the_rest_of_an_abandoned_burst_is_not_sent() -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 2})
    request = burst(rig, 4, 1)
    rig.publish("next", b"", 0)
    assert shown(rig.sent()) == ["PUBLISH 1", "PUBLISH 2"]
    rig.outgoing.abandon(request)
    rig.give(Puback(1))
    assert shown(rig.sent()) == ["PUBLISH"]


def test_the_oldest_is_discarded() -> None:
    rig = Rig()
    first, second = rig.publish("first"), rig.publish("second")
    assert rig.outgoing.discard_oldest(error := RequestDiscarded("full"))
    assert first.error is error
    assert [packet.topic for packet in rig.open() if isinstance(packet, Publish)] == ["second"]
    assert second.is_done
    assert not rig.outgoing.discard_oldest(error)


def test_an_unsubscribe_of_the_clients_own_is_not_discarded() -> None:
    rig = Rig()
    own = unsubscribe(rig, "a")
    own.may_be_discarded = False
    users = unsubscribe(rig, "b")
    assert rig.outgoing.discard_oldest(error := RequestDiscarded("full"))
    assert users.error is error
    assert not rig.outgoing.discard_oldest(error)
    assert not own.is_done


def test_what_the_next_server_does_not_take_fails_when_it_would_be_sent_again() -> None:
    rig = Rig()
    rig.open()
    large, small = subscribe(rig, "x" * 1000), subscribe(rig, "y")
    rig = rig.again()
    rig.open(session_present=True, properties={"maximum_packet_size": 100})
    assert isinstance(large.error, NotSentAgain)
    rig.give(Suback(FIRST + 1, [1]))
    assert small.granted == ["y"]


def test_what_is_given_up_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.open()
    large = subscribe(rig, "x" * 1000)
    rig = rig.again()
    rig.open(session_present=True, properties={"maximum_packet_size": 100})
    assert f"a request is given up: {large.error}" in caplog.text


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_cannot_be_sent_again_are_given_up_one_by_one(qos: int) -> None:
    """The server may have them: at QoS 2 their packet ids are free when it says that it has none with that id."""
    rig = Rig()
    rig.open()
    request = PublishRequest("t", [b"1", bytes(1000), b"3"], qos)
    rig.add(request)
    assert shown(rig.sent()) == ["PUBLISH 1", "PUBLISH 2", "PUBLISH 3"]
    rig = rig.again()
    sent = rig.open(session_present=True, properties={"maximum_packet_size": 100})
    assert shown(sent) == ["PUBLISH 1 dup", *["PUBREL 2"] * (qos == 2), "PUBLISH 3 dup"]
    if qos == 1:
        rig.give(Puback(1), Puback(3))
    else:
        rig.give(Pubcomp(2, Reason.PACKET_IDENTIFIER_NOT_FOUND), Pubrec(1), Pubrec(3))
        assert shown(rig.sent()) == ["PUBREL 1", "PUBREL 3"]
        rig.give(Pubcomp(1), Pubcomp(3))
    assert request.is_done
    assert isinstance(request.error, NotSentAgain)
    assert not rig.outgoing.is_waiting


def test_requests_of_all_kinds_are_sent_again_in_order() -> None:
    rig = Rig()
    rig.open()
    rig.publish(qos=1)
    subscribe(rig, "a")
    subscribe(rig, "b")
    rig.publish(qos=1)
    unsubscribe(rig, "a")
    rig.sent()
    rig = rig.again()
    assert shown(rig.open(session_present=True)) == [
        "PUBLISH 1 dup",
        f"SUBSCRIBE {FIRST}",
        f"SUBSCRIBE {FIRST + 1}",
        "PUBLISH 2 dup",
        f"UNSUBSCRIBE {FIRST + 2}",
    ]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_packet_may_be_as_large_as_the_server_says_and_no_larger(qos: int) -> None:
    for payload in range(80, 110):
        size = len(encode(publish("topic", bytes(payload), qos, qos, properties={"content_type": "x"}), Version.V5))
        for limit in (size - 1, size):
            rig = Rig()
            rig.open(properties={"maximum_packet_size": limit})
            request = rig.publish("topic", bytes(payload), qos, properties={"content_type": "x"})
            assert isinstance(request.error, LargerThanServerAccepts) is (limit < size)


def test_what_the_server_does_not_offer_fails_at_once() -> None:
    rig = Rig()
    rig.open(properties={"maximum_qos": 1, "maximum_packet_size": 100, "wildcard_subscription_available": 0})
    assert isinstance(rig.publish(qos=2).error, NotOffered)
    assert isinstance(rig.publish(payload=bytes(200)).error, LargerThanServerAccepts)
    assert isinstance(subscribe(rig, "a/#").error, NotOffered)
    assert isinstance(subscribe(rig, "a" * 200).error, LargerThanServerAccepts)
    assert isinstance(unsubscribe(rig, "a" * 200).error, LargerThanServerAccepts)
    assert rig.publish(payload=bytes(50)).error is None
    assert shown(rig.sent()) == ["PUBLISH"]


def test_what_the_server_does_not_offer_fails_when_that_is_known() -> None:
    rig = Rig()
    queued = rig.publish(qos=2)
    assert shown(rig.open(properties={"maximum_qos": 1})) == []
    assert isinstance(queued.error, NotOffered)
    assert rig.outgoing.queued == 0


def test_while_much_waits_to_be_sent_requests_stay_queued() -> None:
    rig = Rig()
    rig.open()
    requests = [rig.publish(payload=bytes(100_000)) for _ in range(5)]
    assert [request.is_done for request in requests] == [True, True, True, False, False]
    assert len(rig.sent()) == 3
    assert len(rig.sent()) == 2


class WatchedRequest(PublishRequest):
    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("how", ["abandon", "discard"])
def test_what_is_not_to_be_sent_takes_no_memory_without_a_connection(how: str) -> None:
    outgoing = OutgoingHalf()
    requests: list[weakref.ref[WatchedRequest]] = []
    for number in range(1000):
        request = WatchedRequest("t", (b"%d" % number,), 1)
        outgoing.add(request)
        requests.append(weakref.ref(request))
        if how == "abandon" and number >= 10:
            outgoing.abandon(request)
        elif number >= 10:
            assert outgoing.discard_oldest(RequestDiscarded("full"))
    del request
    gc.collect()
    assert outgoing.queued == 10
    assert sum(each() is not None for each in requests) <= 10 + 10 + MAX_DISCARDED


def test_the_sent_part_of_an_abandoned_burst_is_answered() -> None:
    rig = Rig()
    rig.open(properties={"receive_maximum": 2})
    request = burst(rig, 5, 1)
    assert shown(rig.sent()) == ["PUBLISH 1", "PUBLISH 2"]
    rig.outgoing.abandon(request)
    rig.give(Puback(1))
    assert not request.is_done
    rig.give(Puback(2))
    assert request.is_done
    assert rig.sent() == []


@pytest.mark.parametrize("answer", [Suback(FIRST, [0, 0]), Unsuback(FIRST, [0]), Suback(FIRST + 1, [0])])
def test_a_request_that_is_answered_wrongly_is_sent_again(answer: Suback | Unsuback) -> None:
    rig = Rig()
    rig.open()
    subscribe(rig, "a")
    unsubscribe(rig, "b")
    sent = rig.sent()
    rig.give(answer)
    assert isinstance(rig.connection.error, Disconnected)
    rig = rig.again()
    assert rig.open(session_present=True) == sent


def test_a_server_that_answers_what_was_not_sent_again_yet() -> None:
    rig = Rig()
    rig.open()
    rig.publish(qos=1)
    rig.publish(qos=1)
    request = subscribe(rig, "a")
    rig.sent()
    rig = rig.again()
    assert shown(rig.open(session_present=True, properties={"receive_maximum": 1})) == ["PUBLISH 1 dup"]
    rig.give(Suback(FIRST, [1]))
    assert request.is_done
    rig.give(Puback(1), Puback(2))
    assert rig.sent() == []
    assert rig.connection.error is None


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_are_sent_as_one_are_answered_singly(qos: int) -> None:
    rig = Rig()
    requests = [rig.publish(f"t/{number % 2}", b"%d" % number, qos) for number in range(4)]
    rig.outgoing.abandon(requests.pop(1))
    sent = rig.open()
    assert [(each.topic, each.payload) for each in sent if isinstance(each, Publish)] == [
        ("t/0", b"0"),
        ("t/0", b"2"),
        ("t/1", b"3"),
    ]
    assert rig.outgoing.queued == rig.outgoing.queued_bytes == 0
    first = Puback if qos == 1 else Pubrec
    rig.give(first(2, Reason.NOT_AUTHORIZED))
    assert [each.is_done for each in requests] == [False, True, False]
    assert isinstance(requests[1].error, PublishRefused)
    rig.give(first(1), first(3))
    if qos == 2:
        assert shown(rig.sent()) == ["PUBREL 1", "PUBREL 3"]
        rig.give(Pubcomp(3))
        assert [each.is_done for each in requests] == [False, True, True]
        rig.give(Pubcomp(1))
    assert all(each.is_done for each in requests)
    assert requests[0].error is requests[2].error is None
    assert not rig.outgoing.is_waiting


def test_messages_that_were_sent_as_one_are_sent_again_singly() -> None:
    rig = Rig()
    requests = [rig.publish("t", b"%d" % number, 1) for number in range(5)]
    assert shown(rig.open(properties={"receive_maximum": 4})) == [f"PUBLISH {number}" for number in range(1, 5)]
    rig.give(Puback(1), Puback(3))
    again = rig.again()
    assert shown(again.open(session_present=True)) == ["PUBLISH 2 dup", "PUBLISH 4 dup", "PUBLISH 5"]
    again.give(Puback(2), Puback(4), Puback(5))
    assert all(each.is_done for each in requests)


def test_what_is_not_alike_keeps_its_place() -> None:
    rig = Rig()
    rig.publish("t", b"1")
    rig.publish("t", b"2")
    rig.publish("t", b"3", retain=True)
    rig.publish("t", b"4", properties={"content_type": "x"})
    rig.publish("t", bytes(20_000))
    rig.publish("t", b"5", 2)
    rig.publish("t", b"6", 1)
    subscribe(rig, "a")
    rig.publish("t", b"7")
    names = [each.payload[:1].decode() if isinstance(each, Publish) else type(each).__name__ for each in rig.open()]
    assert names == ["1", "2", "3", "4", "\0", "5", "6", "Subscribe", "7"]


def test_requests_fail_that_were_sent_as_one() -> None:
    rig = Rig()
    requests = [rig.publish("t", qos=1) for _ in range(3)]
    rig.open()
    error = Disconnected("over")
    rig.outgoing.fail(error)
    assert [each.error for each in requests] == [error] * 3


def test_of_requests_that_were_sent_as_one_that_fails_which_cannot_be_sent_again() -> None:
    rig = Rig()
    rig.open()
    rig.publish(qos=1)  # whose packet id is not the row's first
    assert shown(rig.sent()) == ["PUBLISH 1"]
    requests = [PublishRequest("t", (payload,), 1) for payload in (b"1", bytes(1000), b"3")]
    for request in requests:
        rig.outgoing.add(request)
    rig.outgoing.pump(rig.now)
    assert shown(rig.sent()) == ["PUBLISH 2", "PUBLISH 3", "PUBLISH 4"]
    rig = rig.again()
    sent = rig.open(session_present=True, properties={"maximum_packet_size": 100})
    assert shown(sent) == ["PUBLISH 1 dup", "PUBLISH 2 dup", "PUBLISH 4 dup"]
    assert [type(request.error) for request in requests] == [type(None), NotSentAgain, type(None)]
    rig.give(Puback(1), Puback(2), Puback(4))
    assert [request.is_done for request in requests] == [True] * 3
