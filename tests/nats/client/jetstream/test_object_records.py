from dataclasses import replace
from typing import Any

import pytest

from tests.nats.client.stores import objects
from tests.nats.servers import NatsServer
from trunkline.nats.client.jetstream import object_records
from trunkline.nats.client.jetstream.object_records import Replacement, find_info, unless_object
from trunkline.nats.errors import ConnectionLost, NatsError, ObjectExists, RequestTimeout
from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.object_infos import ObjectInfo, ObjectLink, ObjectOptions, subject_of
from trunkline.nats.jetstream.replies import WrongLast

INFO = ObjectInfo(name="a", bucket="films", nuid="N")


async def test_found(server: NatsServer) -> None:
    async with objects(server) as (js, _):
        assert await find_info(js, "films", "a") == (None, 0)
        await js.publish(INFO.subject, replace(INFO, bucket="copied-from").encode())
        info, sequence = await find_info(js, "films", "a")
        assert info is not None
        assert (info.name, info.bucket, info.nuid, sequence) == ("a", "films", "N", 1)
        await js.publish(subject_of("films", "b"), b"nonsense")
        with pytest.raises(BadReply):
            await find_info(js, "films", "b", direct=True)


async def test_replaced(server: NatsServer) -> None:
    async with objects(server) as (js, _):
        replacement = Replacement(js, "films", "a")
        assert not replacement.is_in_doubt
        assert await replacement.run(lambda _: INFO) is None
        before = await Replacement(js, "films", "a").run(lambda _: replace(INFO, nuid="M"))
        assert before is not None
        assert before.nuid == "N"
        assert (await js.stream("OBJ_films")).state.messages == 1


async def test_what_another_one_stores_meanwhile_is_what_is_replaced(server: NatsServer) -> None:
    async with objects(server) as (js, _):
        publish, tries = js.publish, 0

        async def late(*args: Any, **named: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries == 1:
                await publish(INFO.subject, replace(INFO, nuid="other").encode())
            return await publish(*args, **named)

        js.publish = late  # type: ignore[method-assign]
        seen = list[ObjectInfo | None]()

        def make(before: ObjectInfo | None) -> ObjectInfo:
            seen.append(before)
            return INFO

        before = await Replacement(js, "films", "a").run(make)
        assert seen == [None, before]
        assert before is not None
        assert before.nuid == "other"


async def test_an_end_of_attempts(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_records, "ATTEMPTS", 3)
    async with objects(server) as (js, _):
        publish = js.publish

        async def late(*args: Any, **named: Any) -> Any:
            await publish(INFO.subject, INFO.encode())
            return await publish(*args, **named)

        js.publish = late  # type: ignore[method-assign]
        replacement = Replacement(js, "films", "a")
        with pytest.raises(WrongLast):
            await replacement.run(lambda _: INFO)
        assert not replacement.is_in_doubt
        assert (await js.stream("OBJ_films")).state.last_sequence == 3


@pytest.mark.parametrize("error", [RequestTimeout("no answer"), ConnectionLost("it broke")])
async def test_in_doubt(server: NatsServer, error: NatsError) -> None:
    async with objects(server) as (js, _):

        async def fail(*_: Any, **__: Any) -> Any:
            raise error

        js.publish = fail  # type: ignore[method-assign]
        replacement = Replacement(js, "films", "a")
        with pytest.raises(type(error)):
            await replacement.run(lambda _: INFO)
        assert replacement.is_in_doubt


def test_an_object_is_not_lost_by_a_name() -> None:
    link = ObjectOptions(link=ObjectLink(bucket="b"))
    for before in (None, replace(INFO, is_deleted=True), replace(INFO, options=link)):
        assert unless_object(before, INFO) is INFO
    with pytest.raises(ObjectExists, match="films has an object 'a'"):
        unless_object(INFO, INFO)
