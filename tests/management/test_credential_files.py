import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.passwords import parse_passwords, verify_password
from trunkline.hooks.scram import derive_keys, parse_scram
from trunkline.management.credential_files import change_credentials


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def test_a_new_file_is_the_owners_alone(file: Path) -> None:
    change_credentials(file, "ann", "secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert verify_password(parse_passwords(file.read_text())["ann"], b"secret")
    assert [entry.name for entry in file.parent.iterdir()] == ["users"]


def test_a_file_that_others_could_read_no_longer_can_be(file: Path) -> None:
    file.write_text("# kept\n")
    file.chmod(0o644)
    change_credentials(file, "ann", "secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("# kept\nann:$argon2id$")


def test_changing_and_deleting(file: Path) -> None:
    change_credentials(file, "ann", "one")
    change_credentials(file, "bob", "two")
    change_credentials(file, "ann", "three")
    hashes = parse_passwords(file.read_text())
    assert list(hashes) == ["ann", "bob"]
    assert verify_password(hashes["ann"], b"three")
    change_credentials(file, "ann", None)
    assert list(parse_passwords(file.read_text())) == ["bob"]
    with pytest.raises(LookupError):
        change_credentials(file, "ann", None)


def test_scram(file: Path) -> None:
    change_credentials(file, "ann", "secret", scram=True)
    keys = parse_scram(file.read_text())["ann"]
    assert keys == derive_keys("secret", salt=keys.salt)
    change_credentials(file, "ann", None, scram=True)
    assert not file.read_text()


@pytest.mark.parametrize(("name", "password"), [("", "secret"), ("#x", "secret"), ("a\nb", "secret"), ("ann", "")])
def test_what_cannot_stand_in_a_file(file: Path, name: str, password: str) -> None:
    with pytest.raises(ValueError, match="."):
        change_credentials(file, name, password)
    assert not list(file.parent.iterdir())


PASSWORDS, SCRAM = False, True


@pytest.mark.parametrize(("kind", "words"), [(PASSWORDS, "leave --scram out"), (SCRAM, "it takes --scram")])
@pytest.mark.parametrize("password", ["two", None])
def test_a_file_of_the_other_kind_stays_as_it_is(file: Path, kind: bool, words: str, password: str | None) -> None:
    change_credentials(file, "ann", "one", scram=kind)
    before = file.read_bytes()
    for name in ("ann", "bob"):
        with pytest.raises(CredentialsError, match=words):
            change_credentials(file, name, password, scram=not kind)
    assert file.read_bytes() == before


@pytest.mark.parametrize("kind", [PASSWORDS, SCRAM])
def test_a_file_with_lines_that_no_broker_would_read_stays_as_it_is(file: Path, kind: bool) -> None:
    change_credentials(file, "ann", "one", scram=kind)
    with file.open("a") as stream:
        stream.write("nonsense\ncarl:secret\n")
    before = file.read_bytes()
    for password in ("two", None):
        with pytest.raises(CredentialsError) as caught:
            change_credentials(file, "ann", password, scram=kind)
        assert [problem.split(": ")[0] for problem in caught.value.problems] == [f"{file}:2", f"{file}:3"]
    assert file.read_bytes() == before


def test_two_at_a_time_lose_nothing(file: Path) -> None:
    names = [f"user{number}" for number in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: change_credentials(file, name, "secret"), names))
    assert sorted(parse_passwords(file.read_text())) == names
