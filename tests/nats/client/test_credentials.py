import sys
from pathlib import Path

import pytest

from trunkline.nats.client.credentials import Identity, Key, parts_of, seed_of
from trunkline.nats.client.settings import Address, Settings
from trunkline.nats.errors import BadCredentials

#: As `nsc` writes it.
CREDS = """-----BEGIN NATS USER JWT-----
eyJ0.eyJq.c2ln
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""
SEED = seed_of(bytes(range(32)))
HERE = Address("h", 4222)
AT_THE_URL = Address("h", 4222, user="u", password="p")
NONCE = {"nonce": "abc"}


def test_a_seed_known_to_others() -> None:
    """Of the documentation of nkeys: a seed and its public key."""
    key = Key("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY")
    assert key.public == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_key() -> None:
    key = Key(f" {SEED}\n")
    assert SEED.startswith("SU")
    assert key.public.startswith("U")
    assert len(key.public) == 56
    assert key.sign("abc") == key.sign("abc") != key.sign("abd")
    assert "=" not in key.sign("abc")


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        ("", "not whole"),
        ("SU!", "not base32"),
        (SEED[:-1] + ("A" if SEED[-1] != "A" else "B"), "not whole"),
        (SEED[:20], "not whole"),
        (SEED.lower(), "not base32"),
        (seed_of(bytes(31)), "not whole"),
        ("SAAPN4W3EG6KCJGUQTKTJ5GSB5NHK5CHAJL4DBGFUM3HHROI4XUEP4OBK4", "not the seed of a user"),
    ],
)
def test_what_is_no_seed(seed: str, why: str) -> None:
    with pytest.raises(BadCredentials, match=why) as caught:
        Key(seed)
    assert not seed or seed not in str(caught.value)


def test_a_file_of_credentials(tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_text(CREDS.format(seed=SEED))
    assert parts_of(file.read_text(), file) == ("eyJ0.eyJq.c2ln", SEED)
    identity = Identity(Settings(credentials=file))
    assert identity.options(NONCE, HERE) == {"jwt": "eyJ0.eyJq.c2ln", "sig": Key(SEED).sign("abc")}
    assert identity.options({}, HERE) == {"jwt": "eyJ0.eyJq.c2ln"}
    assert Identity(Settings(credentials=str(file))).options({}, HERE) == {"jwt": "eyJ0.eyJq.c2ln"}
    file.write_text(CREDS.format(seed=SEED).replace("eyJ0", "eyJ1"))
    assert identity.options({}, HERE) == {"jwt": "eyJ1.eyJq.c2ln"}


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "has no JWT"), (CREDS.split("***")[0], "has no seed"), (CREDS.format(seed=""), "has no seed")],
)
def test_what_is_no_file_of_credentials(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_text(text)
    with pytest.raises(BadCredentials, match=why):
        Identity(Settings(credentials=file)).options(NONCE, HERE)


def test_without_what_an_extra_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(BadCredentials, match=r"pip install 'trunkline\[nats\]'"):
        Key(SEED)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for settings in (Settings(credentials=tmp_path / "none"), Settings(nkey_seed=tmp_path / "none")):
        with pytest.raises(BadCredentials, match=f"{tmp_path}/none: No such file"):
            Identity(settings).options(NONCE, HERE)
    (tmp_path / "bin").write_bytes(b"\xff")
    with pytest.raises(BadCredentials, match="bin: not UTF-8 text"):
        Identity(Settings(nkey_seed=tmp_path / "bin")).options(NONCE, HERE)


def test_who_a_client_is(tmp_path: Path) -> None:
    (tmp_path / "seed").write_text(SEED)
    key = Key(SEED)
    for settings, address, options in (
        (Settings(), HERE, {}),
        (Settings(), AT_THE_URL, {"user": "u", "pass": "p"}),
        (Settings(), Address("h", 1, password="t"), {"auth_token": "t"}),
        (Settings(user="a", password="b"), AT_THE_URL, {"user": "a", "pass": "b"}),
        (Settings(token="t"), AT_THE_URL, {"auth_token": "t"}),
        (Settings(nkey_seed=tmp_path / "seed"), AT_THE_URL, {"nkey": key.public, "sig": key.sign("abc")}),
    ):
        assert Identity(settings).options(NONCE, address) == options
    assert Identity(Settings(nkey_seed=tmp_path / "seed")).options({}, HERE) == {"nkey": key.public}


def test_files_are_read_at_each_attempt(tmp_path: Path) -> None:
    """A new one may be there, and be the one that the server knows."""
    file = tmp_path / "seed"
    identity = Identity(Settings(nkey_seed=file))
    with pytest.raises(BadCredentials):
        identity.options(NONCE, HERE)
    file.write_text(SEED)
    assert identity.options(NONCE, HERE)["nkey"] == Key(SEED).public
