"""Each plugin that comes with the broker, reloaded while clients need it: nothing is lost, done twice, or refused."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.plugins.shipped.server import Reply, Request, as_json, serving
from tests.plugins.shipped.tokens import SECRET, jwk, jwks, private_key, signed
from trunkline.config.section import PluginSettings
from trunkline.plugins import Context, PluginError
from trunkline.plugins.finding import load, shipped

pytest.importorskip("pyarrow")
from tests.events.recordings import recorded

RELOADS = 4
#: Seconds for which a login holds, where it ends. The broker's time does not go on with the machine's.
LOGIN = 1000
NOT_AUTHORIZED, BANNED, QUOTA, INVALID = 0x87, 0x8A, 0x97, 0x99


class Task:
    """What clients need a plugin for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def begin(self, here: Room) -> None: ...

    async def once(self, here: Room, number: int) -> None:
        """What it does, and the plugin's part in it."""

    async def end(self, here: Room, done: int) -> None:
        """It was done so many times."""


async def log_in(here: Room, client_id: str = "c", **settings: Any) -> int | None:
    wire = here.wire()
    await wire.send(raw.connect(client_id, **settings))
    reason = (await wire.expect_type(raw.CONNACK)).reason
    await wire.abort()
    return reason


class AutoSubscribe(Task):
    async def once(self, here: Room, number: int) -> None:
        client = await here.client(f"c{number}")
        await client.ping()
        assert list(here.session(f"c{number}").session.subscriptions) == [f"to/c{number}"]
        await client.disconnect()


class Bans(Task):
    async def begin(self, here: Room) -> None:
        here.admin.plugins.call("bans", "add", {"kind": "username", "who": "mallory", "seconds": "1000"})

    async def once(self, here: Room, number: int) -> None:
        assert await log_in(here, "thief") == BANNED
        assert await log_in(here, username="mallory") == BANNED
        assert await log_in(here) == 0


class DelayedPublish(Task):
    async def begin(self, here: Room) -> None:
        self.subscriber = await here.client("subscriber")
        await self.subscriber.subscribe(("later/#", 1))
        self.publisher = await here.client("publisher")

    async def once(self, here: Room, number: int) -> None:
        for delay in (0, 5):
            answer = await self.publisher.publish(f"$delayed/{delay}/later/{delay}", b"%d" % number, qos=1)
            assert answer is not None
            assert answer.reason == 0

    async def end(self, here: Room, done: int) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(5)
        got: dict[str, list[bytes]] = {"later/0": [], "later/5": []}
        for _ in range(2 * done):
            packet = await self.subscriber.expect_type(raw.PUBLISH)
            await self.subscriber.acknowledge(packet)
            got[packet.topic].append(packet.payload)
        await self.subscriber.expect_nothing()
        assert list(got.values()) == [[b"%d" % number for number in range(done)]] * 2
        assert here.admin.plugins.call("delayed-publish", "list", {}) == []


class Events(Task):
    async def begin(self, here: Room) -> None:
        self.publisher = await here.client("publisher")

    async def once(self, here: Room, number: int) -> None:
        await self.publisher.publish(f"t/{number}", qos=1)

    async def end(self, here: Room, done: int) -> None:
        await here.admin.plugins.disable("events")
        topics = [row["topic"] for row in recorded(self.folder, "message.publish")]
        assert topics == [f"t/{number}" for number in range(done)]


class Exclusive(Task):
    async def begin(self, here: Room) -> None:
        self.owner = await here.client("owner")
        assert await self.owner.subscribe("$exclusive/t") == [2]
        self.other = await here.client("other")

    async def once(self, here: Room, number: int) -> None:
        assert await self.other.subscribe("$exclusive/t") == [QUOTA]
        assert await self.owner.subscribe("$exclusive/t") == [2]


class Faults(Task):
    async def begin(self, here: Room) -> None:
        self.client = await here.client("c")
        self.late = await here.client("late")
        properties = raw.user_property("fault:disconnect", "152") + raw.user_property("fault:delay", "5")
        await self.late.publish("t", qos=1, properties=properties)

    async def once(self, here: Room, number: int) -> None:
        asked = raw.user_property("fault:rejectpublish", "151")
        once = asked + raw.user_property("fault:requestid", "once")
        for properties, reason in ((asked, QUOTA), (once, 0x10 if number else QUOTA)):
            answer = await self.client.publish("t", qos=1, properties=properties)
            assert answer is not None
            assert answer.reason == reason

    async def end(self, here: Room, done: int) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(5)
        await self.late.expect_disconnect(152)


class HttpAuth(Task):
    async def begin(self, here: Room) -> None:
        service.expire_at = int(here.node.wall()) + LOGIN
        self.ends = await here.client("ends", username="ends", password="p")
        self.client = await here.client("c", username="u", password="p")

    async def once(self, here: Room, number: int) -> None:
        assert await log_in(here, "another", username="u", password="p") == 0
        for topic, reason in (("open", 0x10), ("shut", NOT_AUTHORIZED)):
            answer = await self.client.publish(topic, qos=1)
            assert answer is not None
            assert answer.reason == reason

    async def end(self, here: Room, done: int) -> None:
        await _login_ends(self.ends)


class Jwt(Task):
    def _token(self, **claims: Any) -> str:
        return signed(claims, private_key("RSA"), "RS256", kid="k")

    async def begin(self, here: Room) -> None:
        self.ends = await here.client("ends", password=self._token(exp=here.node.wall() + LOGIN))

    async def once(self, here: Room, number: int) -> None:
        assert await log_in(here, password=self._token()) == 0
        assert await log_in(here, password=signed({}, SECRET)) == 0x86

    async def end(self, here: Room, done: int) -> None:
        await _login_ends(self.ends)


async def _login_ends(client: Any) -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(LOGIN + 1)
    await client.expect_disconnect(NOT_AUTHORIZED)


class MessageFilter(Task):
    async def begin(self, here: Room) -> None:
        self.subscriber, self.publisher = await here.client("subscriber"), await here.client("publisher")
        assert await self.subscriber.subscribe("t?v>5") == [2]

    async def once(self, here: Room, number: int) -> None:
        for value in ("5", "6"):
            await self.publisher.publish("t", value.encode(), qos=1, properties=raw.user_property("v", value))
        packet = await self.subscriber.expect_type(raw.PUBLISH)
        await self.subscriber.acknowledge(packet)
        assert packet.payload == b"6"


class TopicRewrite(Task):
    async def begin(self, here: Room) -> None:
        self.subscriber, self.publisher = await here.client("subscriber"), await here.client("publisher")
        await self.subscriber.subscribe("#")

    async def once(self, here: Room, number: int) -> None:
        await self.publisher.publish("a/t", b"%d" % number, qos=1)
        await self.subscriber.take_publish("b/t", b"%d" % number, qos=1)


class Validation(Task):
    async def begin(self, here: Room) -> None:
        self.publisher = await here.client("publisher")

    async def once(self, here: Room, number: int) -> None:
        answer = await self.publisher.publish("json/t", b"{", qos=1)
        assert answer is not None
        assert answer.reason == INVALID


class Webhook(Task):
    async def begin(self, here: Room) -> None:
        self.publisher = await here.client("publisher")

    async def once(self, here: Room, number: int) -> None:
        await self.publisher.publish("t", b"%d" % number, qos=1)

    async def end(self, here: Room, done: int) -> None:
        await here.admin.plugins.disable("webhook")
        assert list(dict.fromkeys(service.events)) == [str(number) for number in range(done)]
        assert dict(here.admin.plugins.figures())["plugins.webhook.dropped"] == 0


#: Settings of each; FOLDER and URL stand for those of the test.
SETTINGS: dict[str, dict[str, Any]] = {
    "auto-subscribe": {"subscriptions": [{"filter": "to/%c"}]},
    "bans": {"bans": [{"kind": "client_id", "who": "thief"}]},
    "events": {"path": "FOLDER", "kinds": ["message.publish"]},
    "http-auth": {"authenticate": {"url": "URL/login"}, "authorize": {"url": "URL/acl"}},
    "jwt": {"jwks_url": "URL/jwks", "required_claims": []},
    "topic-rewrite": {"rules": [{"source": "a/#", "pattern": "^a/(.*)", "target": "b/$1"}]},
    "validation": {"rules": [{"topics": ["json/#"], "content": "json"}]},
    "webhook": {"url": "URL/hook", "events": ["message.publish"], "batch_time": 0, "secret": "s"},
}
#: Settings that are refused, or that it cannot start with.
BAD: dict[str, dict[str, Any]] = {
    "auto-subscribe": {"subscriptions": [{"filter": "a#"}]},
    "bans": {"max_bans": 0},
    "delayed-publish": {"max_delay": -1},
    "events": {"path": "/dev/null/log"},
    "exclusive": {"max_subscriptions": -1},
    "faults": {"max_request_ids": 0},
    "http-auth": {"max_waiting": 0},
    "jwt": {"algorithms": ["HS1"]},
    "message-filter": {"max_filters": 0},
    "topic-rewrite": {"rules": [{"source": "a/#", "pattern": "(", "target": "b"}]},
    "validation": {"rules": [{"topics": ["json/#"], "schema_file": "/not/there"}]},
    "webhook": {"batch_size": 0},
}
TASKS: dict[str, type[Task]] = {
    "auto-subscribe": AutoSubscribe,
    "bans": Bans,
    "delayed-publish": DelayedPublish,
    "events": Events,
    "exclusive": Exclusive,
    "faults": Faults,
    "http-auth": HttpAuth,
    "jwt": Jwt,
    "message-filter": MessageFilter,
    "topic-rewrite": TopicRewrite,
    "validation": Validation,
    "webhook": Webhook,
}


class Given(PluginSettings, extra="allow"):
    """Settings as a file has them, of no model yet."""


class Service:
    """What the plugins ask."""

    def __init__(self) -> None:
        self.events: list[str] = []
        #: When one login ends, in seconds since the epoch.
        self.expire_at = 0

    def answer(self, request: Request) -> Reply:
        if request.path == "/jwks":
            return Reply(200, jwks(jwk("RSA", kid="k")))
        if request.path == "/hook":
            self.events += [event["payload"] for event in request.json]
            return Reply(204)
        if request.path == "/acl":
            return as_json({"result": "deny" if request.json["topic"] == "shut" else "allow"})
        ends = {"expire_at": self.expire_at} if request.json["username"] == "ends" else {}
        return as_json({"result": "allow", **ends})


service = Service()


@pytest.fixture(params=TASKS)
def name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def task(name: str, tmp_path: Path) -> Task:
    return TASKS[name](tmp_path)


@pytest.fixture
def settings(name: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    service.events.clear()
    with serving(service.answer) as server:
        text = json.dumps(SETTINGS.get(name, {}))
        yield json.loads(text.replace("URL", server.url("").rstrip("/")).replace("FOLDER", str(tmp_path)))


def test_all_plugins_have_a_task() -> None:
    assert sorted(TASKS) == sorted(BAD) == sorted(shipped())


@asynccontextmanager
async def at_work(task: Task, here: Room) -> AsyncIterator[Callable[[], int]]:
    """A client is at work with the plugin as long as the block runs, which is told how often it was done."""
    await task.begin(here)
    done, over = count(), trio.Event()
    times = 0

    async def work() -> None:
        nonlocal times
        while not over.is_set() or times < RELOADS:
            await task.once(here, next(done))
            times += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        yield lambda: times
        over.set()
    await task.end(here, times)
    assert [entry.name for entry in here.admin.hooks.listing() if entry.crashes] == []


async def test_reloads_while_clients_need_it(
    name: str, task: Task, settings: dict[str, Any], mock_clock: MockClock
) -> None:
    async with room(plugins={name: settings}) as here, at_work(task, here) as times:
        for _ in range(RELOADS):
            before = times()
            await here.admin.plugins.reload(name)
            while times() == before:
                await trio.lowlevel.checkpoint()


async def test_bad_settings_while_clients_need_it(
    name: str, task: Task, settings: dict[str, Any], mock_clock: MockClock
) -> None:
    async with room(plugins={name: settings}) as here, at_work(task, here):
        for _ in range(RELOADS):
            with pytest.raises(PluginError, match="goes on as before"):
                await here.admin.plugins.reload(name, Given(**{**settings, **BAD[name]}))


async def test_failing_starts_while_clients_need_it(
    name: str, task: Task, settings: dict[str, Any], mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """And between them a start that succeeds."""
    plugin = load(name)
    fails = False

    @wraps(plugin)
    def make(context: Context[Any]) -> Any:
        made = plugin(context)
        start = getattr(made, "start", lambda: None)

        async def start_and_fail() -> None:
            if name != "events":  # which opens its log there, and that is the last that can fail
                start()
            for _ in range(10):  # clients do not stop meanwhile
                await trio.lowlevel.checkpoint()
            raise OSError("a version that cannot start")

        if fails:
            made.start = start_and_fail
        return made

    async with room() as here:
        await here.admin.plugins.enable(name, settings, make)
        async with at_work(task, here):
            for number in range(RELOADS):
                fails = number % 2 == 0
                if not fails:
                    await here.admin.plugins.reload(name)
                    continue
                with pytest.raises(PluginError, match="OSError: a version that cannot start\n.* goes on as before"):
                    await here.admin.plugins.reload(name)
