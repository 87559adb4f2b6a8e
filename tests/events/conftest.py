from collections.abc import Callable, Iterator

import pytest

from tests.events import logs
from tests.events.disk import Disk
from trunkline.events import open_segment


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    yield
    logs.close_logs()


@pytest.fixture
def threadless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps would not wait for a thread."""

    async def at_once(work: Callable[..., object], *arguments: object, **_: object) -> object:
        return work(*arguments)

    monkeypatch.setattr("trio.to_thread.run_sync", at_once)
    monkeypatch.setattr("trio.from_thread.check_cancelled", lambda: None)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(open_segment, "FileIO", disk.file)
    return disk
