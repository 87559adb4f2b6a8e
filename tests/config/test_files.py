import os
from pathlib import Path

from tests.config.problems import problems
from trunkline.config.config import Config
from trunkline.config.reader import MAX_FILE, load


def test_a_byte_order_mark_is_skipped(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[mqtt]\nmax_qos = 1\n")
    assert load(file, {}).config.mqtt.max_qos == 1


def test_a_pipe_is_no_configuration_file(file: Path) -> None:
    os.mkfifo(file)
    assert problems(file) == [f"{file}: cannot be read: is not a regular file, so it cannot be read again at a reload"]


def test_a_device_without_an_end_is_no_configuration_file(file: Path) -> None:
    zero = Path("/dev/zero")
    assert problems(zero) == [f"{zero}: cannot be read: is not a regular file, so it cannot be read again at a reload"]
    file.write_text('[auth]\npassword_file = "/dev/zero"\n')
    (line,) = problems(file)
    assert line.startswith(f"{file}: auth.password_file: {zero} is not a regular file")
    assert load(os.devnull, {}).config == Config()


def test_a_configuration_file_has_a_largest_size(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(MAX_FILE + 1)
    assert problems(file) == [f"{file}: cannot be read: is larger than 16,777,216 bytes"]


def test_a_pipe_is_no_file_that_can_be_read_again(file: Path) -> None:
    os.mkfifo(file.parent / "pipe")
    file.write_text('[auth]\npassword_file = "pipe"\n[acl]\nfile = "pipe"\n')
    assert [line.split(": ")[1] for line in problems(file)] == ["auth.password_file", "acl.file"]
