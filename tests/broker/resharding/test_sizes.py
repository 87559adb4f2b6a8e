"""How large a store becomes is known before it is divided."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.management.resharded import broker, leave
from trunkline.broker.resharding.resharding import reshard
from trunkline.broker.resharding.sizes import counted, most
from trunkline.store import Engine
from trunkline.store.sqlite import SqliteEngine


def made(former: Sequence[Engine], folder: Path, count: int) -> int:
    """The bytes of the parts, with what is written beside them until they are closed."""
    with ExitStack() as stack:
        new = [stack.enter_context(closing(SqliteEngine(folder / f"{number}.db"))) for number in range(count)]
        reshard(former, new, upgrade_qos=False)
        return sum(file.stat().st_size for file in folder.iterdir() if file.suffix in (".db", ".db-wal"))


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(
    ("clients", "messages", "retained", "size"),
    [
        pytest.param(0, 0, 0, 0, id="nothing"),
        pytest.param(50, 400, 0, 100, id="for many"),
        pytest.param(1, 2000, 0, 1000, id="for one"),
        pytest.param(0, 0, 500, 2000, id="retained"),
    ],
)
async def test_it_is_as_large_as_was_said(
    tmp_path: Path, clients: int, messages: int, retained: int, size: int, count: int
) -> None:
    path, folder = tmp_path / "a.db", tmp_path / "new"
    folder.mkdir()
    async with broker(path, 1) as b:
        for number in range(clients):
            await leave(b, f"away-{number}", ("t", 1))
        for _ in range(messages):
            b.publish("t", bytes(size), qos=1)
        for number in range(retained):
            b.publish(f"r/{number}", bytes(size), retain=True)
    with closing(SqliteEngine(path, read_only=True)) as former:
        said, least = counted([former], count, upgrade_qos=False), made([former], folder, count)
        assert 0.7 * least <= said <= 2.2 * least
        assert most([former], count) >= least
