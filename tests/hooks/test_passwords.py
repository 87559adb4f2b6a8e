"""Password files, and the authenticator that uses them."""

import subprocess
import sys

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from trunkline.hooks import ALLOW, ClientInfo, Deny, Hooks
from trunkline.hooks import passwords as module
from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.passwords import (
    REFUSED,
    PasswordAuthenticator,
    delete_password,
    hash_password,
    parse_passwords,
    set_password,
    verify_password,
)
from trunkline.hooks.points import CLIENT_AUTHENTICATE
from trunkline.hooks.scram import parse_scram, set_scram
from trunkline.mqtt.reasons import Reason

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
USERS = {"ada": CHEAP.hash("lovelace"), "bob": CHEAP.hash("")}
CLIENT_IDS = {"meter-1": CHEAP.hash("m1"), "both": CHEAP.hash("lovelace")}


def client(client_id: str = "c", username: str | None = None) -> ClientInfo:
    return ClientInfo(client_id, username=username)


class TestHash:
    def test_it_verifies(self) -> None:
        hash = hash_password("lovelace")
        assert hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        assert verify_password(hash, b"lovelace")
        assert not verify_password(hash, b"Lovelace")
        assert hash_password("lovelace") != hash

    def test_bytes_that_are_no_text(self) -> None:
        assert verify_password(hash_password(b"\xff\x00"), b"\xff\x00")

    def test_loading_the_hooks_does_not_load_argon2(self) -> None:
        code = "import sys, trunkline.hooks, trunkline.hooks.passwords; sys.exit('argon2' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestFile:
    def test_reading(self) -> None:
        text = f"# people\n\nada:{USERS['ada']}\r\na:b:{USERS['bob']}\n"
        assert parse_passwords(text) == {"ada": USERS["ada"], "a:b": USERS["bob"]}

    def test_all_problems_are_told_with_their_lines(self) -> None:
        text = f"ada:secret\nbob\n:{USERS['ada']}\nc:{USERS['ada']}\nc:{USERS['ada']}\n"
        with pytest.raises(CredentialsError) as caught:
            parse_passwords(text, "users.txt")
        assert caught.value.problems == [
            "users.txt:1: not an argon2id hash: delete the line, and set it with `trunkline passwd FILE NAME`",
            "users.txt:2: no ':' in the line; accepted: name:…",
            "users.txt:3: no name; accepted: name:…",
            "users.txt:5: 'c' occurs twice",
        ]
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("cost", ["m=8,t=1,p=1", "m=1048576,t=100,p=16", "m=16,t=1,p=2"])
    def test_what_a_login_may_cost(self, cost: str) -> None:
        assert parse_passwords(f"ann:$argon2id$v=19${cost}${'A' * 22}${'A' * 43}\n")

    @pytest.mark.parametrize(
        "cost", ["m=1048577,t=1,p=1", "m=7,t=1,p=1", "m=15,t=1,p=2", "m=8,t=101,p=1", "m=8,t=0,p=1", "m=8,t=1,p=0"]
    )
    def test_a_hash_that_costs_too_much_or_cannot_be(self, cost: str) -> None:
        with pytest.raises(
            CredentialsError, match=rf"^f:1: a hash with {cost}; accepted: m from 8 for each p to 1048576"
        ):
            parse_passwords(f"ann:$argon2id$v=19${cost}${'A' * 22}${'A' * 43}\n", "f")

    def test_a_version_that_is_none(self) -> None:
        with pytest.raises(CredentialsError, match="not an argon2id hash"):
            parse_passwords(USERS["ada"].join(["ann:", "\n"]).replace("v=19", "v=20"))

    def test_keys_of_scram_are_told_from_hashes(self) -> None:
        with pytest.raises(CredentialsError, match=r"^f:1: a key of SCRAM, which belongs into .* auth\.scram_file$"):
            parse_passwords(set_scram("", "ada", "lovelace"), "f")
        with pytest.raises(CredentialsError, match=r"^f:1: the hash of a password, .* auth\.password_file$"):
            parse_scram(f"ada:{USERS['ada']}\n", "f")

    def test_setting_changes_one_line(self) -> None:
        text = f"# first\nada:{USERS['ada']}\n\nbob:{USERS['bob']}\n# last"
        changed = set_password(text, "ada", "new")
        lines = changed.split("\n")
        assert (lines[0], lines[2:]) == ("# first", ["", f"bob:{USERS['bob']}", "# last", ""])
        assert verify_password(parse_passwords(changed)["ada"], b"new")
        added = set_password(changed, "eve", "apple")
        assert added.startswith(changed)
        assert list(parse_passwords(added)) == ["ada", "bob", "eve"]
        assert set_password("", "eve", "apple").startswith("eve:$argon2id$")

    def test_deleting(self) -> None:
        text = f"ada:{USERS['ada']}\n# note\n"
        assert delete_password(text, "ada") == "# note\n"
        with pytest.raises(LookupError, match="'bob' is not in the file"):
            delete_password(text, "bob")

    @pytest.mark.parametrize("name", ["", "#x", "a\nb", " a", "a ", "a\x00"])
    def test_names_that_cannot_stand_in_a_file(self, name: str) -> None:
        with pytest.raises(ValueError, match="a name must be printable"):
            set_password("", name, "x")

    @given(
        hashes=st.dictionaries(
            st.text("ab:#é", min_size=1).filter(lambda name: name[0] != "#"), st.sampled_from(sorted(USERS.values()))
        )
    )
    def test_what_is_written_is_read_back(self, hashes: dict[str, str]) -> None:
        text = "".join(f"{name}:{hash}\n" for name, hash in hashes.items())
        assert parse_passwords(text) == hashes


class TestAuthenticator:
    @pytest.mark.parametrize(
        ("client_id", "username", "password", "expected"),
        [
            ("c", None, None, None),
            ("c", "ada", b"lovelace", ALLOW),
            ("c", "ada", b"byron", REFUSED),
            ("c", "ada", b"", REFUSED),
            ("c", "ada", None, REFUSED),
            ("c", "bob", b"", ALLOW),
            ("c", "bob", None, REFUSED),
            ("c", "eve", b"lovelace", REFUSED),
            ("c", "eve", None, REFUSED),
            ("c", None, b"lovelace", None),
            ("meter-1", None, b"m1", ALLOW),
            ("meter-1", "anybody", b"m1", ALLOW),
            ("meter-1", None, b"x", REFUSED),
            ("meter-1", None, None, REFUSED),
            # a user's own password does not open another's client id, nor the other way round
            ("meter-1", "ada", b"lovelace", REFUSED),
            ("meter-1", "ada", b"m1", REFUSED),
            ("both", "ada", b"lovelace", ALLOW),
        ],
    )
    def test_who_comes_in(self, client_id: str, username: str | None, password: bytes | None, expected: object) -> None:
        authenticator = PasswordAuthenticator(USERS, CLIENT_IDS)
        assert authenticator(client(client_id, username), password) == expected
        concerned = authenticator.concerns(client(client_id, username), password)
        # an id that is not in its file takes as long as one that is
        assert concerned is (expected is not None or password is not None)

    def test_refused_is_a_bad_user_name_or_password(self) -> None:
        assert Deny(Reason.BAD_USER_NAME_OR_PASSWORD) == REFUSED

    def test_a_user_name_that_nobody_proved_is_taken_away(self) -> None:
        by_id, by_name = client("meter-1", "admin"), client("both", "ada")
        authenticator = PasswordAuthenticator(USERS, CLIENT_IDS)
        assert authenticator(by_id, b"m1") is ALLOW
        assert authenticator(by_name, b"lovelace") is ALLOW
        assert (by_id.username, by_name.username) == (None, "ada")

    def test_without_a_file_of_ids_a_password_alone_is_nothing_to_verify(self) -> None:
        authenticator = PasswordAuthenticator(USERS)
        assert not authenticator.concerns(client("c", None), b"lovelace")
        assert authenticator(client("c", None), b"lovelace") is None

    def test_without_a_file_of_users_a_name_alone_is_no_credential(self) -> None:
        authenticator = PasswordAuthenticator(client_ids=CLIENT_IDS)
        assert authenticator(client("c", "ada"), None) is None
        assert authenticator(client("c", "ada"), b"x") == REFUSED

    @pytest.mark.parametrize(
        ("users", "client_ids", "count"), [(USERS, None, 1), ({}, CLIENT_IDS, 2), (USERS, CLIENT_IDS, 2)]
    )
    def test_every_refusal_costs_the_same(
        self, users: dict[str, str], client_ids: dict[str, str] | None, count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        verified = list[str]()

        def counted(hash: str, password: bytes) -> bool:
            verified.append(hash.rsplit("$", 2)[0])
            return verify_password(hash, password)

        monkeypatch.setattr(module, "verify_password", counted)
        authenticator = PasswordAuthenticator(users, client_ids)
        for client_id, username in (("c", "ada"), ("c", "eve"), ("meter-1", "ada"), ("meter-1", "eve")):
            verified.clear()
            assert authenticator(client(client_id, username), b"wrong") == REFUSED
            assert verified == ["$argon2id$v=19$m=8,t=1,p=1"] * count
        if client_ids is not None:  # nor is it told whether an id is in the file
            verified.clear()
            assert authenticator(client("x", None), b"wrong") is None
            assert verified == ["$argon2id$v=19$m=8,t=1,p=1"] * count

    def test_in_a_chain(self) -> None:
        hooks = Hooks()
        authenticator = PasswordAuthenticator(USERS)
        hooks.add(CLIENT_AUTHENTICATE, authenticator, filter=authenticator.concerns)
        assert hooks.decide(CLIENT_AUTHENTICATE, client(), None) is None
        assert hooks.decide(CLIENT_AUTHENTICATE, client("c", "ada"), b"lovelace") is ALLOW
        assert hooks.decide(CLIENT_AUTHENTICATE, client("c", "ada"), b"wrong") == REFUSED
