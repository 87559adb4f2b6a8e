"""SCRAM-SHA-256 against the vector of RFC 7677, and against a client of its own."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hooks.scram_client import ScramClient
from trunkline.hooks import ClientInfo, Continue, Deny, Exchange, Hooks, Success
from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.points import CLIENT_ENHANCED_AUTHENTICATE
from trunkline.hooks.scram import (
    METHOD,
    ScramAuthenticator,
    ScramKeys,
    _write_keys,  # pyright: ignore[reportPrivateUsage]
    delete_scram,
    derive_keys,
    parse_scram,
    set_scram,
)
from trunkline.mqtt.reasons import Reason

KEYS = {
    "ada": derive_keys("secret", salt=b"0123456789abcdef", iterations=4096),
    "bob": derive_keys("other", salt=b"fedcba9876543210", iterations=4096),
}


def talk(authenticator: ScramAuthenticator, client: ScramClient, info: ClientInfo | None = None) -> object:
    """The whole exchange; its outcome."""
    info = info or ClientInfo("c")
    exchange = Exchange(METHOD, client.first())
    answer = authenticator(info, exchange)
    if not isinstance(answer, Continue):
        return answer
    exchange.first, exchange.data = False, client.final(answer.data)
    outcome = authenticator(info, exchange)
    if isinstance(outcome, Success):
        assert client.trusts(outcome.data)
    return outcome


def test_the_vector_of_rfc_7677() -> None:
    keys = {"user": derive_keys("pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096)}
    authenticator = ScramAuthenticator(keys, nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    exchange = Exchange(METHOD, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert authenticator(ClientInfo("c"), exchange) == Continue(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    exchange.first = False
    exchange.data = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert authenticator(ClientInfo("c"), exchange) == Success(
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", username="user"
    )


class TestExchange:
    def test_the_right_password(self) -> None:
        outcome = talk(ScramAuthenticator(KEYS), ScramClient("ada", "secret"))
        assert isinstance(outcome, Success)
        assert outcome.username == "ada"

    @pytest.mark.parametrize(
        ("name", "password"), [("ada", "other"), ("ada", ""), ("eve", "secret"), ("bob", "secret")]
    )
    def test_a_wrong_password_and_an_unknown_user_look_the_same(self, name: str, password: str) -> None:
        outcome = talk(ScramAuthenticator(KEYS), ScramClient(name, password))
        assert outcome == Deny(Reason.NOT_AUTHORIZED, "invalid-proof")

    def test_an_unknown_user_gets_the_same_kind_of_challenge_each_time(self) -> None:
        def challenge(authenticator: ScramAuthenticator, name: str) -> dict[str, str]:
            answer = authenticator(ClientInfo("c"), Exchange(METHOD, ScramClient(name, "x").first()))
            assert isinstance(answer, Continue)
            return dict(part.split("=", 1) for part in answer.data.decode().split(","))

        first, restarted = ScramAuthenticator(KEYS), ScramAuthenticator(KEYS | {"new": KEYS["bob"]})
        eve, again, after = challenge(first, "eve"), challenge(first, "eve"), challenge(restarted, "eve")
        assert eve["s"] == again["s"] == after["s"] != challenge(first, "mallory")["s"]
        assert eve["r"] != again["r"]
        ada = challenge(first, "ada")
        assert (len(eve["s"]), eve["i"]) == (len(ada["s"]), ada["i"])

    def test_nobody_is_known(self) -> None:
        assert talk(ScramAuthenticator({}), ScramClient("ada", "x")) == Deny(Reason.NOT_AUTHORIZED, "invalid-proof")

    def test_an_unknown_user_cannot_prove_the_empty_key(self) -> None:
        # the stored key of the fake entry is all zeros; no proof may fit it by being known
        keys = ScramKeys(b"salt", 4096, bytes(32), bytes(32))
        authenticator = ScramAuthenticator({"ada": keys})
        assert isinstance(talk(authenticator, ScramClient("ada", "x")), Deny)

    def test_a_client_that_could_bind_the_channel(self) -> None:
        assert isinstance(talk(ScramAuthenticator(KEYS), ScramClient("ada", "secret", header="y,,")), Success)

    def test_a_header_that_was_changed_on_the_way(self) -> None:
        client = ScramClient("ada", "secret", header="y,,")
        authenticator, exchange = ScramAuthenticator(KEYS), Exchange(METHOD, b"n,," + client.bare.encode())
        answer = authenticator(ClientInfo("c"), exchange)
        assert isinstance(answer, Continue)
        exchange.first, exchange.data = False, client.final(answer.data)
        assert authenticator(ClientInfo("c"), exchange) == Deny(Reason.NOT_AUTHORIZED, "channel-bindings-dont-match")

    @pytest.mark.parametrize(
        ("data", "value"),
        [
            (b"", "other-error"),
            (b"n", "other-error"),
            (b"n,n=ada", "other-error"),
            (b"x,,n=ada,r=abc", "other-error"),
            (b"n,,n=ada", "other-error"),
            (b"n,,r=abc,n=ada", "other-error"),
            (b"n,,n=ada,r=", "other-error"),
            (b"n,,n=ada,r=a b", "other-error"),
            (b"n,a=bob,n=ada,r=abc", "other-error"),
            (b"p=tls-unique,,n=ada,r=abc", "channel-binding-not-supported"),
            (b"n,,m=x,n=ada,r=abc", "extensions-not-supported"),
            (b"n,,n=,r=abc", "invalid-username-encoding"),
            (b"n,,n=a=b,r=abc", "invalid-username-encoding"),
            (b"n,,n=a\x00b\xc3\xa9,r=abc", "invalid-username-encoding"),
            (b"n,,n=\xff,r=abc", "invalid-encoding"),
        ],
    )
    def test_first_messages_that_are_none(self, data: bytes, value: str) -> None:
        answer = ScramAuthenticator(KEYS)(ClientInfo("c"), Exchange(METHOD, data))
        assert answer == Deny(Reason.NOT_AUTHORIZED, value)

    @pytest.mark.parametrize(
        ("data", "value"),
        [
            (b"", "other-error"),
            (b"c=biws,r={nonce}", "other-error"),
            (b"r={nonce},c=biws,p=" + b64encode(bytes(32)), "other-error"),
            (b"c=biws,r=another,p=" + b64encode(bytes(32)), "other-error"),
            (b"c=!,r={nonce},p=" + b64encode(bytes(32)), "invalid-encoding"),
            (b"c=eSws,r={nonce},p=" + b64encode(bytes(32)), "channel-bindings-dont-match"),
            (b"c=biws,r={nonce},p=***", "invalid-encoding"),
            (b"c=biws,r={nonce},p=", "invalid-proof"),
            (b"c=biws,r={nonce},p=" + b64encode(bytes(32)), "invalid-proof"),
            (b"\xff", "invalid-encoding"),
        ],
    )
    def test_last_messages_that_are_none(self, data: bytes, value: str) -> None:
        authenticator = ScramAuthenticator(KEYS, nonce=lambda: "XYZ")
        exchange = Exchange(METHOD, ScramClient("ada", "secret", nonce="abc").first())
        authenticator(ClientInfo("c"), exchange)
        exchange.first, exchange.data = False, data.replace(b"{nonce}", b"abcXYZ")
        assert authenticator(ClientInfo("c"), exchange) == Deny(Reason.NOT_AUTHORIZED, value)

    def test_a_challenge_is_good_for_one_answer(self) -> None:
        authenticator, client = ScramAuthenticator(KEYS), ScramClient("ada", "secret")
        exchange = Exchange(METHOD, client.first())
        answer = authenticator(ClientInfo("c"), exchange)
        assert isinstance(answer, Continue)
        exchange.first, exchange.data = False, client.final(answer.data)
        assert isinstance(authenticator(ClientInfo("c"), exchange), Success)
        assert authenticator(ClientInfo("c"), exchange) == Deny(Reason.NOT_AUTHORIZED, "other-error")

    @pytest.mark.parametrize(("username", "succeeds"), [("ada", True), ("bob", False), (None, False)])
    def test_a_connection_does_not_change_hands(self, username: str | None, succeeds: bool) -> None:
        authenticator, client = ScramAuthenticator(KEYS), ScramClient("ada", "secret")
        info = ClientInfo("c", username=username)
        exchange = Exchange(METHOD, client.first(), again=True)
        answer = authenticator(info, exchange)
        assert isinstance(answer, Continue)
        exchange.first, exchange.data = False, client.final(answer.data)
        assert isinstance(authenticator(info, exchange), Success) is succeeds

    def test_other_methods_are_passed_on(self) -> None:
        hooks = Hooks()
        hooks.add(CLIENT_ENHANCED_AUTHENTICATE, ScramAuthenticator(KEYS))
        assert hooks.decide(CLIENT_ENHANCED_AUTHENTICATE, ClientInfo("c"), Exchange("GS2-KRB5", b"")) is None
        begun = hooks.decide(
            CLIENT_ENHANCED_AUTHENTICATE, ClientInfo("c"), Exchange(METHOD, ScramClient("ada", "").first())
        )
        assert isinstance(begun, Continue)

    @settings(max_examples=30)
    @given(
        name=st.text("ab,= é", min_size=1, max_size=5),
        password=st.text("pq,=ß", max_size=5),
        wrong=st.text("pq", max_size=3),
    )
    def test_any_name_and_password(self, name: str, password: str, wrong: str) -> None:
        authenticator = ScramAuthenticator({name: derive_keys(password, iterations=4096)})
        outcome = talk(authenticator, ScramClient(name, password))
        assert isinstance(outcome, Success)
        assert outcome.username == name
        assert isinstance(talk(authenticator, ScramClient(name, wrong)), Success) is (wrong == password)

    @given(first=st.binary(max_size=40), final=st.binary(max_size=40), valid=st.booleans())
    def test_noise_is_refused(self, first: bytes, final: bytes, valid: bool) -> None:
        authenticator = ScramAuthenticator(KEYS)
        exchange = Exchange(METHOD, ScramClient("ada", "").first() if valid else b"n,,n=" + first)
        authenticator(ClientInfo("c"), exchange)
        exchange.first, exchange.data = False, b"c=biws," + final
        assert isinstance(authenticator(ClientInfo("c"), exchange), Deny)


KEYS_STRATEGY = st.builds(
    ScramKeys,
    salt=st.binary(min_size=1, max_size=20),
    iterations=st.integers(4096, 10**7),
    stored_key=st.binary(min_size=32, max_size=32),
    server_key=st.binary(min_size=32, max_size=32),
)


def serialise_scram(keys: Mapping[str, ScramKeys]) -> str:
    return "".join(f"{name}:{_write_keys(entry)}\n" for name, entry in keys.items())


class TestFile:
    @given(keys=st.dictionaries(st.text("ab:é ", min_size=1).filter(lambda name: bool(name.strip())), KEYS_STRATEGY))
    def test_what_is_written_is_read_back(self, keys: dict[str, ScramKeys]) -> None:
        assert parse_scram(serialise_scram(keys)) == keys

    def test_setting_and_deleting(self) -> None:
        text = set_scram("# people\n", "ada", "secret")
        assert text.startswith("# people\nada:15000:")
        assert isinstance(talk(ScramAuthenticator(parse_scram(text)), ScramClient("ada", "secret")), Success)
        assert "secret" not in text
        assert delete_scram(text, "ada") == "# people\n"
        with pytest.raises(LookupError, match="'bob'"):
            delete_scram(text, "bob")

    def test_no_two_salts_are_the_same(self) -> None:
        assert derive_keys("x", iterations=4096).salt != derive_keys("x", iterations=4096).salt

    def test_all_problems_are_told_with_their_lines(self) -> None:
        good = serialise_scram({"ada": KEYS["ada"]}).strip()
        short = serialise_scram({"c": replace(KEYS["ada"], stored_key=b"x")}).strip()
        text = f"{good}\n\n# note\nbob\nb:100:AA==:AA==:AA==\n{good}\nd:4096:*:AA==:AA==\n{short}\ne:x:AA==:AA==:AA==\n"
        with pytest.raises(CredentialsError) as caught:
            parse_scram(text, "keys.txt")
        assert [problem.split(": ", 1) for problem in caught.value.problems] == [
            ["keys.txt:4", "no ':' in the line; accepted: name:…:…:…:…"],
            ["keys.txt:5", "found '100' iterations; accepted: 4096 or more"],
            ["keys.txt:6", "'ada' occurs twice"],
            ["keys.txt:7", "salt and keys are base64; write the file with `trunkline passwd --scram`"],
            ["keys.txt:8", "the salt must not be empty, and keys must have 32 bytes"],
            ["keys.txt:9", "found 'x' iterations; accepted: 4096 or more"],
        ]
