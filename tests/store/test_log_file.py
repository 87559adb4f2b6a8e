"""What was lost in a log of SQLite's, told by its frames."""

import struct
from pathlib import Path

import pytest

from trunkline.store.log_file import LogFile

NEW, OLD = b"new salt", b"old salt"
#: Page, whether a commit ends with it, salt.
Frame = tuple[int, bool, bytes]


def checksum(data: bytes, first: int, second: int) -> tuple[int, int]:
    for one, other in struct.iter_unpack("<2I", data):
        first = first + one + second & 0xFFFFFFFF
        second = second + other + first & 0xFFFFFFFF
    return first, second


def log(path: Path, frames: list[Frame], whole: int) -> LogFile:
    """Whose first frames are whole; of the others the checksums are wrong."""
    header = struct.pack(">4I", 0x377F0682, 3007000, 4096, 0) + NEW
    sums = checksum(header, 0, 0)
    content = header + struct.pack(">2I", *sums)
    for number, (page, ends, salt) in enumerate(frames):
        head = struct.pack(">2I", page, 9 * ends)
        sums = checksum(head + bytes(4096), *sums)
        content += head + salt + (struct.pack(">2I", *sums) if number < whole else b"damaged!") + bytes(4096)
    path.write_bytes(content)
    return LogFile(path)


COMMIT: list[Frame] = [(1, False, NEW), (2, True, NEW)]
LEFT: list[Frame] = [(1, False, OLD), (2, True, OLD)] * 3


@pytest.mark.parametrize(
    ("frames", "whole", "lost"),
    [
        ([], 0, False),
        (COMMIT * 2, 4, False),
        (COMMIT * 2 + LEFT, 4, False),
        (COMMIT * 2, 2, False),  # one commit, which may not have been acknowledged
        (COMMIT * 3, 2, True),
        (COMMIT * 2 + LEFT, 0, True),
        (COMMIT + COMMIT[:1], 0, True),
        ([(1, False, NEW), (1, False, NEW)], 0, True),  # the mark of the end was in what is damaged
        ([(1, False, OLD), *COMMIT, *LEFT], 0, False),  # the beginning did not reach the disk
    ],
)
def test_more_than_one_commit_behind_those_that_are_whole(
    frames: list[Frame], whole: int, lost: bool, tmp_path: Path
) -> None:
    file = log(tmp_path / "log", frames, whole)
    assert file.has_lost_commits(whole) is lost
    file.close()


def test_a_damaged_header_takes_the_whole_log_with_it(tmp_path: Path) -> None:
    file = log(tmp_path / "log", COMMIT * 2, 4)
    assert not file.has_lost_commits(4)
    file.close()
    damaged = bytearray((tmp_path / "log").read_bytes())
    damaged[17] ^= 1
    (tmp_path / "log").write_bytes(damaged)
    file = LogFile(tmp_path / "log")
    assert file.has_lost_commits(0)
    file.close()


def test_a_frame_of_two_times_says_nothing(tmp_path: Path) -> None:
    """Where a sector ends between its page, which is an old one, and its salt, which is new."""
    frames = [(number, False, NEW) for number in range(1, 60)]
    inside = [number for number in range(59) if (32 + number * 4120) % 512 > 512 - 24]
    assert inside
    frames[inside[0]] = (1, True, NEW)
    file = log(tmp_path / "log", frames, 0)
    assert not file.has_lost_commits(0)
    file.close()


def test_how_far_the_log_reaches(tmp_path: Path) -> None:
    file = log(tmp_path / "log", COMMIT * 2 + LEFT, 4)
    assert [file.reaches(number) for number in (1, 4, 5, 11)] == [True, True, False, False]
    file.close()
