from trunkline.broker.session.channel import Channel
from trunkline.config.config import Config
from trunkline.hooks import ClientInfo
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.versions import Version


def channel() -> Channel:
    def nobody(*_: object) -> None: ...

    return Channel(ClientInfo("c"), nobody, nobody, Version.V5, Config())


def test_decisions_are_forgotten_and_those_under_way_are_void() -> None:
    own = channel()
    own.may_publish[3]["t"] = True
    own.may_read["t"] = False
    own.answer = Publish("t", b""), True
    before = own.rules
    own.forget_decisions()
    assert (own.may_publish, own.may_read, own.answer) == ({}, {}, None)
    assert own.rules == before + 1


def test_decisions_about_publishing_are_apart_by_qos_and_retain() -> None:
    own = channel()
    own.may_publish[0]["t"] = True
    assert "t" not in own.may_publish[1]


def test_connections_share_nothing() -> None:
    one, two = channel(), channel()
    one.may_read["t"] = True
    one.may_publish[0]["t"] = True
    assert (two.may_read, two.may_publish) == ({}, {})
    assert one.aliases_in is not two.aliases_in
    assert one.aliases_out is not two.aliases_out
    assert one != two
