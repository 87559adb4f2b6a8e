"""What a client may say at random: the listener answers as servers do. `THOROUGH=100` tries a hundred times as many."""

import random
import re
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from tests.broker.nats.test_against_servers import Servers, in_any_order, told
from tests.nats.servers import BROKER, CORE_KINDS, running
from tests.store.conftest import THOROUGH

#: Connections of one test.
DIALOGUES = 25
SUBJECTS = (b"a", b"a.b", b"A.b.c", b"-", b"_INBOX.x")
#: With `pedantic`, nobody publishes there; without it, a server takes them as they are.
FILTERS = (b"a.*", b"a.>", b"*", b">", b"a.*.b")
#: Without `pedantic`, a server lets one publish there, too: see the documentation.
NONE = (b"a.>.b", b"a..b", b".a", b"a.")
NUMBERS = (b"0", b"1", b"2", b"12", b"01", b"-1", b"+1", b"1.5", b"x", b"", b"99999999999", b"1e3", b"0x1")
#: None is the size of something: what follows would be taken for a payload, and there would be no PONG.
SIZES = (b"-1", b"+1", b"1.5", b"x", b"99999999999", b"1e3", b"0x1")
BLOCKS = (
    *(b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA:b\r\nA: c\r\n\r\n"),
    *(b"NATS/1.0 503\r\n\r\n", b"NATS/1.0\r\nbad\r\n\r\n"),
)
OPTIONS = (
    *(b"{}", b'{"verbose":true}', b'{"verbose":false,"pedantic":true}', b'{"headers":true,"verbose":false}'),
    *(b'{"verbose":null}', b'{"Pedantic":false}', b'{"name":5}', b'{"protocol":"x"}', b'{"sig":1}', b"[]", b"1", b"{"),
)
OTHERS = (b"PING", b"PONG", b"pong", b"+OK", b"", b"pUb a 0\r\n", b"FOO", b"-ERR 'x'")
#: What is said before it closes differs: see the documentation.
_LAST_WORDS = re.compile(rb"(-ERR '[^']*'\r\n)*<end>$")


def size(chance: random.Random, real: int) -> bytes:
    return b"%d" % real if chance.random() < 0.9 else chance.choice(SIZES)


def publication(chance: random.Random) -> bytes:
    block = chance.choice(BLOCKS) if chance.random() < 0.3 else b""
    payload = b"x" * chance.randrange(4)
    to = chance.choice(SUBJECTS + FILTERS) + (b" " + chance.choice(SUBJECTS) if chance.random() < 0.3 else b"")
    if block:
        sizes = size(chance, len(block)) + b" " + size(chance, len(block) + len(payload))
        return b"HPUB %b %b\r\n%b%b" % (to, sizes, block, payload)
    return b"PUB %b %b\r\n%b" % (to, size(chance, len(payload)), payload)


def line(chance: random.Random) -> bytes:
    kind = chance.randrange(20)
    if kind < 8:
        return publication(chance)
    if kind < 13:
        queue = b" " + chance.choice((b"q", b"q.x", b"q*", b"q..z")) if chance.random() < 0.2 else b""
        return b"SUB %b%b %b" % (chance.choice(SUBJECTS + FILTERS + NONE), queue, chance.choice((b"1", b"2", b"zz")))
    if kind < 15:
        after = b" " + chance.choice(NUMBERS) if chance.random() < 0.5 else b""
        return b"UNSUB %b%b" % (chance.choice((b"1", b"2", b"zz", b"77")), after)
    return chance.choice(OTHERS)


def dialogue(chance: random.Random) -> bytes:
    """One CONNECT, or two behind which nothing was subscribed to."""
    connects = [b"CONNECT " + chance.choice(OPTIONS) for _ in range(chance.choice((0, 1, 1, 1, 2)))]
    lines = [*connects, *(line(chance) for _ in range(chance.randrange(1, 7))), b"PING"]
    return b"".join(each + b"\r\n" for each in lines)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Servers]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp
        yield {kind: stack.enter_context(running(kind, folder(kind))).port for kind in CORE_KINDS}


def are_alike(mine: bytes, theirs: bytes) -> bool:
    """Why a connection ends need not be said, and what comes before that may be lost."""
    if mine.endswith(b"<end>") and theirs.endswith(b"<end>"):
        shorter, longer = sorted([_LAST_WORDS.sub(b"", in_any_order(each)[1]) for each in (mine, theirs)], key=len)
        return longer.startswith(shorter)
    return in_any_order(mine) == in_any_order(theirs)


@pytest.mark.parametrize("seed", range(8 * THOROUGH))
def test_they_answer_alike(seed: int, servers: Servers) -> None:
    """As one of the servers at least, which differ from each other here and there."""
    chance = random.Random(seed)
    for _ in range(DIALOGUES):
        data = dialogue(chance)
        said = {kind: told(port, data) for kind, port in servers.items()}
        mine = said.pop(BROKER)
        assert any(are_alike(mine, theirs) for theirs in said.values()), f"{data!r} {mine!r} {said}"
