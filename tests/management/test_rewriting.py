import os
import stat
from pathlib import Path

import pytest

from trunkline.config import folder_lock
from trunkline.config.folder_lock import alone
from trunkline.management.control_claim import claim
from trunkline.management.control_place import PlaceError
from trunkline.management.rewriting import rewrite

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no owners and permissions of this kind")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def refuse(text: str) -> str:
    raise ValueError(text)


def test_a_failure_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("before\n")

    def fail(source: Path, target: Path) -> None:
        raise OSError("disk")

    with pytest.raises(ValueError, match="before"):
        rewrite(file, refuse, private=True)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        rewrite(file, str.upper, private=True)
    assert file.read_text() == "before\n"
    assert [entry.name for entry in file.parent.iterdir()] == ["users"]


@posix
@pytest.mark.parametrize("private", [True, False])
def test_the_owner_stays(file: Path, monkeypatch: pytest.MonkeyPatch, private: bool) -> None:
    file.write_text("before\n")
    given: list[tuple[int, int]] = []

    def chown(path: Path, user: int, group: int) -> None:
        given.append((user, group))

    owner = file.stat()
    found = Path.stat

    def stat_as_another(path: Path, **options: bool) -> os.stat_result:
        """What this process makes is another user's."""
        result = found(path, **options)
        if path.name == "users":
            return result
        return os.stat_result((*result[:4], result.st_uid + 1, result.st_gid + 1, *result[6:]))

    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 1)
    monkeypatch.setattr(Path, "stat", stat_as_another)
    monkeypatch.setattr(os, "chown", chown)
    rewrite(file, str.upper, private=private)
    assert given == [(owner.st_uid, owner.st_gid)]


@posix
@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o640)])
def test_permissions(file: Path, private: bool, mode: int) -> None:
    file.write_text("before\n")
    file.chmod(0o640)
    rewrite(file, str.upper, private=private)
    assert stat.S_IMODE(file.stat().st_mode) == mode


@posix
def test_a_new_file_that_is_not_private_is_as_others_are(file: Path) -> None:
    other = file.with_name("other")
    other.touch()
    rewrite(file, lambda _: "new\n", private=False)
    assert file.read_text() == "new\n"
    assert file.stat().st_mode == other.stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to("users")
    file.write_text("before\n")
    rewrite(link, str.upper, private=False)
    assert link.is_symlink()
    assert file.read_text() == "BEFORE\n"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_line_endings_stay(file: Path, ending: bytes) -> None:
    file.write_bytes(b"one" + ending + b"two" + ending)
    rewrite(file, lambda text: text.replace("one\n", "one\nand\n"), private=False)
    assert file.read_bytes() == ending.join([b"one", b"and", b"two", b""])


def test_a_byte_order_mark_is_no_text(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfone\n")
    rewrite(file, lambda text: text.removeprefix("one"), private=False)
    assert file.read_bytes() == b"\n"


@posix
def test_a_pipe_is_neither_waited_for_nor_replaced(file: Path) -> None:
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a regular file"):
        rewrite(file, lambda _: "new", private=True)
    assert file.is_fifo()


def test_what_is_not_utf_8_stays(file: Path) -> None:
    file.write_bytes(b"\xff")
    with pytest.raises(OSError, match="not UTF-8"):
        rewrite(file, lambda _: "new", private=True)
    assert file.read_bytes() == b"\xff"


@posix
def test_nobody_waits_for_ever_for_a_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "LOCK_TIMEOUT", 0.0)
    file.parent.chmod(0o700)
    with alone(file.parent):
        with pytest.raises(TimeoutError, match="another process holds the folder"):
            rewrite(file, lambda _: "new", private=True)
        with pytest.raises(PlaceError, match="another process holds the folder"):
            claim(file.parent / "x.sock", tcp=False, private=False)
    rewrite(file, lambda _: "new", private=True)
    assert file.read_text() == "new"
