"""TLS in memory, split at every byte, and through real sockets with OpenSSL's and paho's clients."""

import shutil
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from paho.mqtt import client as mqtt
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.net.below import Below
from tests.broker.net.tls_pair import (
    AUTHORITY,
    SERVER,
    Pair,
    client_context,
    mutual,
    settings,
    write_files,
)
from trunkline import testing
from trunkline.broker.net.tls import CUT_OFF, MAX_UNSTEPPED, TlsLayer
from trunkline.broker.net.tls_context import TlsContext, certificate_of, parse_keys
from trunkline.broker.net.transport import BLOCKED, Ended, Failed
from trunkline.config.errors import SecurityError
from trunkline.config.tls_settings import TlsSettings
from trunkline.hooks.identity import Certificate, Identity
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connect
from trunkline.mqtt.versions import Version

trustme = pytest.importorskip("trustme")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_files(tmp_path)


@pytest.mark.parametrize("split", [0, 1, 7])
async def test_bytes_pass_in_both_directions_however_the_records_are_split(files: Path, split: int) -> None:
    pair = Pair(settings(files), split=split)
    pair.handshake(b"CONNECT with the Finished")
    assert pair.data == b"CONNECT with the Finished"
    with pair.scheduler.turn:
        pair.layer.send(b"ab")
        pair.layer.send(b"cd")
        assert pair.layer.pending == 4
    assert len(pair.below.writes) == 1, "all output of a turn leaves in one write"
    pair.exchange()
    assert pair.client.read(100) == b"abcd"
    much = bytes(range(256)) * 1000
    pair.layer.send(much)
    pair.exchange()
    assert b"".join(iter(lambda: pair.client.read(len(much)) if pair.incoming.pending else b"", b"")) == much
    pair.client.write(much)
    pair.exchange()
    assert pair.data.endswith(much)
    if not split:
        assert pair.got[-1] == much, "the records of a read are passed on in one piece"


BROKEN_RECORDS = b"\x17\x03\x03\x00\x05hello" * 3


@pytest.mark.parametrize("ends", ["in its handshake", "by a broken record", "in order"])
async def test_a_connection_that_ends_leaves_nothing_to_others(files: Path, ends: str) -> None:
    """The listener's connections share their buffers."""
    context = client_context()
    first = Pair(settings(files), context)
    if ends == "in its handshake":
        first.outgoing.write(b"\x16\x03\x01\x00\x05hello" * 3)
        first.exchange()
        assert first.failed
    else:
        first.handshake()
    second = Pair(settings(files), context, before=first)
    second.handshake()
    second.client.write(b"a record in two pieces")
    record = second.outgoing.read()
    second.below.receiver(record[:9])
    if ends == "in order":
        with pytest.raises(ssl.SSLWantReadError):
            first.client.unwrap()
    if ends != "in its handshake":
        first.outgoing.write(BROKEN_RECORDS)
        first.exchange()
    first.layer.close()
    assert not first.server.incoming.pending
    assert not first.server.outgoing.pending
    second.below.receiver(record[9:])
    assert second.data == b"a record in two pieces"
    second.layer.send_now(b"answer")
    second.exchange()
    assert second.client.read(100) == b"answer"


class Broken:
    """OpenSSL's side of a connection, one of whose methods fails when it has done its work, or before."""

    def __init__(self, inner: ssl.SSLObject | None, fails: str) -> None:
        self._inner: Any = inner
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._fails else getattr(self._inner, name)

    def _fail(self, *args: Any) -> None:
        if self._fails == "write":
            self._inner.write(*args)
        raise MemoryError(self._fails)


@pytest.mark.parametrize("fails", ["handshake", "identity", "read", "write"])
async def test_an_error_leaves_nothing_to_others(files: Path, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Pair(settings(files))
    first = Pair(settings(files), before=listener)
    if fails in ("handshake", "identity"):

        def fail(_context: object, tls: ssl.SSLObject, *_: str) -> None:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            raise MemoryError(fails)

        with monkeypatch.context() as patch:
            patch.setattr(TlsContext, fails, fail)
            first.handshake(b"behind the handshake")
    else:
        first.handshake()
        broken: Any = Broken(first.layer._tls, fails)  # pyright: ignore[reportPrivateUsage]
        first.layer._tls = broken  # pyright: ignore[reportPrivateUsage]
        first.client.write(b"of the first")
        record = first.outgoing.read()
        with pytest.raises(MemoryError):
            first.layer.receive(record) if fails == "read" else first.layer.send_now(b"for the first")
    assert (first.server.incoming.pending, first.server.outgoing.pending) == (0, 0)
    second = Pair(settings(files), before=listener)
    second.handshake(b"of the second")
    assert second.data == b"of the second"


async def test_close_notify_from_either_side_and_truncation(files: Path) -> None:
    pair = Pair(settings(files))
    pair.handshake()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.exchange()
    assert pair.ended == ""
    pair = Pair(settings(files))
    pair.handshake()
    pair.layer.send(b"farewell")
    pair.layer.finish()
    assert pair.below.calls[-1] == "finish"
    pair.client.write(b"still read")
    pair.exchange()
    assert pair.data == b"still read"
    assert pair.client.read(100) == b"farewell"
    assert pair.client.read(100) == b"", "close_notify"
    pair = Pair(settings(files))
    pair.handshake()
    pair.below.receiver(BLOCKED)
    assert pair.got == [BLOCKED]
    pair.below.receiver(Ended(""))
    assert pair.ended == CUT_OFF


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode(Connect("c"), Version.V5), "this looks like MQTT without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP"),
        (b"\x00\x01", "this is not TLS"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake: "),
        (b"\x16\x03\x01\xff\xff" + bytes(65_535), "TLS handshake: "),  # a record of 64 kB
        (b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380), "TLS handshake: "),  # a ClientHello of 16 MB
    ],
)
async def test_failed_handshakes_are_named_and_counted(files: Path, data: bytes, why: str) -> None:
    pair = Pair(settings(files))
    with pair.scheduler.turn:
        pair.below.receiver(data)
    assert pair.failed is not None
    assert why in pair.failed
    with pair.scheduler.turn:
        pair.below.receiver(b"more")
    pair.below.receiver(Ended(""))
    assert [type(each) for each in pair.got] == [Failed, Ended]
    assert pair.metrics.tls_handshakes_failed == 1
    pair.layer.close()
    assert pair.scheduler.timers == 0


async def test_what_comes_before_the_step_of_a_handshake_is_bounded(files: Path) -> None:
    pair = Pair(settings(files))
    with suppress(ssl.SSLWantReadError):
        pair.client.do_handshake()
    with pair.scheduler.turn:
        pair.below.receiver(pair.outgoing.read())
        pair.below.receiver(bytes(MAX_UNSTEPPED))
        assert pair.below.calls == ["pause"]
    assert pair.below.calls == ["pause", "resume"]
    assert pair.failed is not None


async def test_a_client_that_does_not_read_its_handshake_costs_one_flight(files: Path) -> None:
    pair = Pair(settings(files))
    with suppress(ssl.SSLWantReadError):
        pair.client.do_handshake()
    with pair.scheduler.turn:
        pair.below.receiver(pair.outgoing.read())
    flight = len(pair.below.taken())
    assert 0 < flight < 16_384
    for _ in range(10):
        with pair.scheduler.turn:
            pair.below.receiver(b"\x14\x03\x03\x00\x01\x01")  # ChangeCipherSpec, which TLS 1.3 ignores
    assert len(pair.below.taken()) < 100, "no more than an alert"


async def test_a_client_certificate_names_the_client(files: Path) -> None:
    pair = Pair(mutual(files, username_from="cn", client_id_from="dn"), client_context(certificate=True))
    pair.handshake(b"x")
    identity = pair.layer.identity
    assert identity is not None
    assert identity.certificate is not None
    assert (identity.username, identity.client_id) == ("device-1", identity.certificate.subject)
    assert "O=Plant\\, 3" in identity.client_id
    assert identity.certificate.names == (("DNS", "device.example"),)
    assert identity.server_name == "localhost"
    pair = Pair(mutual(files))
    pair.handshake()
    assert pair.failed == "TLS handshake: the client has no certificate"


async def test_what_a_load_balancer_knows_of_the_client_is_not_hidden(files: Path) -> None:
    known = Identity(Certificate("Sensor 7"), username="Sensor 7")
    pair = Pair(mutual(files), client_context(certificate=True))
    pair.below.identity = known
    pair.handshake()
    assert pair.layer.identity is known
    pair = Pair(mutual(files, username_from="cn"), client_context(certificate=True))
    pair.below.identity = known
    pair.handshake()
    assert pair.layer.identity is not None
    assert pair.layer.identity.username == "device-1", "the settings say so"


async def test_the_client_that_waited_longest_is_given_up(files: Path) -> None:
    pair = Pair(settings(files, max_handshakes=1))
    other = Below(scheduler=pair.scheduler)
    other.put(TlsLayer(other, pair.server))
    assert pair.failed == "TLS handshake: too many handshakes wait for their clients"


async def test_each_name_has_its_certificate(files: Path) -> None:
    other = AUTHORITY.issue_cert("other.example", common_name="other")
    other.private_key_and_cert_chain_pem.write_to_path(str(files / "other.pem"))
    both = settings(files, certificates=({"certificate": files / "other.pem"},))
    for name, common_name in (("other.example", "other"), ("localhost", "broker")):
        pair = Pair(both, server_name=name)
        pair.handshake(b"x")
        subject = dict(pair_ for part in (pair.client.getpeercert() or {})["subject"] for pair_ in part)
        assert subject["commonName"] == common_name
        assert pair.data == b"x"


async def test_a_revoked_certificate_is_refused(files: Path) -> None:
    revoked = AUTHORITY.issue_cert("stolen.example", common_name="stolen")
    (files / "crl.pem").write_bytes(crl_of(revoked))
    listed = mutual(files, crl=files / "crl.pem")
    context = client_context()
    revoked.configure_cert(context)
    pair = Pair(listed, context)
    pair.handshake(b"x")
    assert "is not accepted" in (pair.failed or "")
    assert not pair.data
    pair = Pair(listed, client_context(certificate=True))
    pair.handshake(b"x")
    assert pair.data == b"x"


def certificate_with(files: Path, common_names: list[str], names: list[str]) -> ssl.SSLContext:
    """A client that has a certificate with these names."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority = x509.load_pem_x509_certificate(AUTHORITY.cert_pem.bytes())
    authoritys_key = serialization.load_pem_private_key(AUTHORITY.private_key_pem.bytes(), None)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in common_names])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
    made = builder.sign(authoritys_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (files / "own.pem").write_bytes(key.private_bytes(*plain) + made)
    context = client_context()
    context.load_cert_chain(files / "own.pem")
    return context


@pytest.mark.parametrize("key", ["username_from", "client_id_from"])
@pytest.mark.parametrize(
    ("source", "common_names", "names", "accepted"),
    [
        ("cn", ["a"], ["x", "y"], True),
        ("cn", ["a", "b"], ["x"], False),
        ("san", ["a", "b"], ["x"], True),
        ("san", ["a"], ["x", "y"], False),
        ("dn", ["a", "b"], ["x", "y"], True),
        ("serial", ["a", "b"], ["x", "y"], True),
    ],
)
async def test_a_certificate_with_several_names_where_one_is_meant(
    key: str, source: str, common_names: list[str], names: list[str], accepted: bool, files: Path
) -> None:
    context = certificate_with(files, common_names, names)
    pair = Pair(mutual(files, **{key: source}), context)
    pair.handshake(b"x")
    if accepted:
        assert pair.data == b"x"
    else:
        assert pair.data == b""
        assert pair.failed is not None
        assert f"several names where one is meant (`{source}`)" in pair.failed
    # who is not named by it may have any
    pair = Pair(mutual(files), context)
    pair.handshake(b"x")
    assert pair.data == b"x"


def crl_of(*revoked: Any) -> bytes:
    """The authority's list of revoked certificates, as PEM."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization

    authority = x509.load_pem_x509_certificate(AUTHORITY.cert_pem.bytes())
    key = serialization.load_pem_private_key(AUTHORITY.private_key_pem.bytes(), None)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    builder = builder.last_update(now - timedelta(days=1)).next_update(now + timedelta(days=1))
    for each in revoked:
        serial = x509.load_pem_x509_certificate(each.cert_chain_pems[0].bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - timedelta(days=1))
        builder = builder.add_revoked_certificate(entry.build())
    made = builder.sign(key, hashes.SHA256())
    return bytes(made.public_bytes(serialization.Encoding.PEM))


async def test_an_encrypted_key_has_its_password_in_a_file(files: Path) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (files / "key.pem").write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    (files / "password").write_text("secret\n")
    pair = Pair(settings(files, key=files / "key.pem", key_password_file=files / "password"))
    pair.handshake(b"x")
    assert pair.data == b"x"
    (files / "password").write_text("wrong")
    with pytest.raises(SecurityError, match="key.pem"):
        TlsContext(settings(files, key=files / "key.pem", key_password_file=files / "password"), "secure")


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("resumption", [False, True])
async def test_sessions_are_resumed_if_they_may_be(files: Path, version: str, resumption: bool) -> None:
    context, chosen = client_context(), settings(files, max_version=version, resumption=resumption)
    pair = None
    for again in (False, True):
        pair = Pair(chosen, context, before=pair)
        pair.handshake(b"x")
        with pair.scheduler.turn:
            pair.layer.send(b"y")
        pair.exchange()
        assert pair.client.read(1) == b"y"  # a ticket of 1.3 comes before it
        # Python has no switch for the session ids of TLS 1.2
        assert pair.client.session_reused == (again and (resumption or version == "1.2"))
        with suppress(ssl.SSLWantReadError):
            pair.client.unwrap()
        pair.exchange()
        pair.layer.finish()
        pair.exchange()


async def test_a_handshake_has_a_time_limit(files: Path, autojump_clock: MockClock) -> None:
    table = {"certificate": str(files / "server.pem"), "handshake_timeout": 5}
    async with testing.broker(
        listeners=[{"url": "tls://127.0.0.1:0", "tls": table}], mqtt={"connect_timeout": 50}
    ) as b:
        began = trio.current_time()
        stream = await trio.open_tcp_stream(b.host, b.port)
        await stream.send_all(b"\x16\x03\x01")
        async with stream:
            assert await stream.receive_some() == b""
        assert 5 <= trio.current_time() - began < 10


def test_mqtt_over_websocket_over_tls(files: Path) -> None:
    table = {"certificate": str(files / "server.pem")}
    got = threading.Event()
    with testing.broker(listeners=[{"url": "wss://127.0.0.1:0", "tls": table}]) as b:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "a", transport="websockets")
        client.tls_set_context(client_context())
        client.on_connect = lambda client, *_: client.subscribe("t")
        client.on_subscribe = lambda client, *_: client.publish("t", b"x")
        client.on_message = lambda *_: got.set()
        client.connect("localhost", b.port)
        client.loop_start()
        assert got.wait(60)
        client.disconnect()
        client.loop_stop()


async def test_output_that_waits_is_dropped_when_the_client_breaks_the_protocol(files: Path) -> None:
    pair = Pair(settings(files))
    pair.handshake()
    pair.client.write(b"ping")
    broken = pair.outgoing.read() + b"\x17\x03\x03\xff\xff"  # longer than a record may be
    pair.layer.above = lambda event: pair.layer.send(b"pong") if isinstance(event, bytes) else pair.got.append(event)
    with pair.scheduler.turn:
        pair.below.receiver(broken)
    assert pair.failed == "TLS: packet length too long"
    assert not pair.scheduler.crashes
    assert pair.layer.pending == 0


async def test_a_broken_record_behind_a_packet_ends_the_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with testing.broker(listeners=["tls://127.0.0.1:0"]) as b:
        raw = await trio.open_tcp_stream(b.host, b.port)
        stream = trio.SSLStream(raw, b.client_context(), server_hostname="localhost")
        await stream.send_all(encode(Connect("a"), Version.V5))
        await stream.receive_some()
        behind: list[bytes] = []
        send_all, raw.send_all = raw.send_all, behind.append  # type: ignore[assignment, method-assign]
        with suppress(TypeError):  # what holds it back is not async
            await stream.send_all(b"\xc0\0" * 3)
        await send_all(b"".join(behind) + b"\x17\x03\x03\xff\xff")
        await b.wait_until(lambda: not b.clients)
        await trio.aclose_forcefully(raw)
    assert "crashed" not in caplog.text
    assert "packet length too long" in caplog.text


@pytest.mark.parametrize("name", [b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7", b"localho\0t"])
async def test_a_server_name_that_is_no_text(files: Path, name: bytes) -> None:
    pair = Pair(settings(files))
    with suppress(ssl.SSLWantReadError):
        pair.client.do_handshake()
    hello = pair.outgoing.read()
    assert hello.count(b"localhost") == 1
    with pair.scheduler.turn:
        pair.below.receiver(hello.replace(b"localhost", name))  # a traceback would fail this test
    assert (pair.failed or "").startswith("TLS handshake: ")
    assert pair.below.taken(), "an alert"


def test_other_errors_that_nobody_handles_are_reported_as_before() -> None:
    code = """
import sys
from pathlib import Path
from trunkline.broker.net.tls_context import TlsContext
from trunkline.config.tls_settings import TlsSettings
try:
    TlsContext(TlsSettings(certificate=Path("none")), "secure")
except Exception:
    pass
class Breaks:
    def __del__(self) -> None:
        b"\\xff".decode()
Breaks()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "UnicodeDecodeError" in done.stderr


@pytest.mark.parametrize("kind", ["ECDSA", "RSA"])
async def test_the_key_of_another_certificate_is_named(files: Path, kind: str) -> None:
    other = AUTHORITY.issue_cert("other", key_type=trustme.KeyType[kind])
    other.private_key_pem.write_to_path(files / "other.key")
    with pytest.raises(SecurityError, match=r"server\.pem is not the certificate of the key in .*other\.key"):
        TlsContext(settings(files, key=files / "other.key"), "secure")


def test_problems_with_files_are_named(files: Path) -> None:
    (files / "bad.pem").write_text("nothing")
    chosen = TlsSettings(certificate=files / "bad.pem", client_certificates="optional", client_ca=files / "no")
    with pytest.raises(SecurityError) as caught:
        TlsContext(chosen, "secure")
    assert len(caught.value.problems) == 2
    with pytest.raises(ValueError, match="line 1"):
        parse_keys("device:12")
    with pytest.raises(ValueError, match="line 2: 'a' occurs twice"):
        parse_keys(f"a:{'ab' * 16}\na:{'cd' * 16}")
    assert parse_keys("a:b:" + "ab" * 16) == {"a:b": b"\xab" * 16}
    assert certificate_of({"notAfter": "Jan  1 00:00:00 2030 GMT"}, b"").common_name == ""


async def test_a_broker_over_tls_with_reload_and_alarm(files: Path) -> None:
    table = mutual(files, username_from="cn", expiry_warning=10**11).model_dump(mode="json", exclude_defaults=True)
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": table}]) as b:
        assert [alarm.name for alarm in b.alarms] == ["certificate_expires"]

        async def connect(name: str) -> trio.SSLStream[trio.SocketStream]:
            raw = await trio.open_tcp_stream(b.host, b.port)
            stream = trio.SSLStream(raw, client_context(certificate=True), server_hostname="localhost")
            await stream.send_all(encode(Connect(name), Version.V5))
            assert (await stream.receive_some())[0] == 0x20
            return stream

        stream = await connect("a")
        b.node.reconfiguring.reload()
        again = await connect("b")
        assert [(each.client_id, each.username) for each in b.clients] == [("a", "device-1"), ("b", "device-1")]
        (files / "server.pem").write_text("broken")
        with pytest.raises(SecurityError):
            b.node.reconfiguring.reload()
        third = await connect("c")
        for each in (stream, again, third):
            await each.send_all(b"\xc0\0")
            assert await each.receive_some() == b"\xd0\0"
            await trio.aclose_forcefully(each)
        inside(b.node).listeners.remove(inside(b.node).listeners[0])
        assert not list(b.alarms)
        b.node.reconfiguring.reload()  # the broken file is nobody's any more


def test_s_client_gets_no_old_version(files: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    table = {"certificate": str(files / "server.pem")}
    with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": table}]) as b:
        where = ["-connect", f"{b.host}:{b.port}", "-CAfile", str(files / "ca.pem"), "-alpn", "mqtt"]

        def run(*more: str) -> str:
            done = subprocess.run(
                [openssl, "s_client", *where, *more], input=b"", capture_output=True, timeout=60, check=False
            )
            return done.stdout.decode(errors="replace")

        for old in ("-tls1", "-tls1_1"):
            assert "Cipher is (NONE)" in run(old, "-cipher", "DEFAULT@SECLEVEL=0")
        assert "Cipher is (NONE)" in run("-tls1_2", "-cipher", "AES128-SHA:DHE-RSA-AES256-SHA@SECLEVEL=0")
        good = run("-tls1_3")
        assert "ALPN protocol: mqtt" in good
        assert "Verify return code: 0 (ok)" in good
        assert "Cipher is ECDHE-" in run("-tls1_2")


@pytest.mark.parametrize(("version", "command"), [("-tls1_2", b"R"), ("-tls1_3", b"K")])
def test_a_new_handshake_is_refused_and_new_keys_are_not(
    version: str, command: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    with testing.broker(listeners=["tls://127.0.0.1:0"]) as b:
        trust = ["-CAfile", str(b.certificates.authority)]
        command_line = [openssl, "s_client", "-connect", f"{b.host}:{b.port}", version, *trust]
        both = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        client: Any = subprocess.Popen(command_line, **both, bufsize=0)
        output = b""

        def until(wanted: bytes) -> None:
            nonlocal output
            while wanted not in output:
                data = client.stdout.read(65_536)
                assert data, output
                output += data

        try:
            client.stdin.write(encode(Connect("a"), Version.V5))
            b.wait_for_client("a", timeout=60)
            client.stdin.write(command + b"\n")
            if command == b"R":
                until(b"no renegotiation")
                b.wait_until(lambda: not b.clients, timeout=60)
            else:
                until(b"KEYUPDATE")
                client.stdin.write(b"\xc0\0")
                until(b"\xd0\0")
                assert b.clients
        finally:
            client.kill()
            client.communicate()
    assert "crashed" not in caplog.text


def test_paho_over_tls(files: Path) -> None:
    paho = pytest.importorskip("paho.mqtt.client")
    table = mutual(files, username_from="cn").model_dump(mode="json", exclude_defaults=True)
    with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": table}]) as b:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, "p")
        client.tls_set_context(client_context(certificate=True))
        came = threading.Event()
        client.on_connect = lambda client, *_: client.subscribe("t", 1)
        client.on_subscribe = lambda client, *_: client.publish("t", bytes(300_000), 1)
        client.on_message = lambda *_: came.set()
        client.connect(b.host, b.port)
        client.loop_start()
        assert came.wait(60)
        client.disconnect()
        client.loop_stop()


@pytest.mark.skipif(not getattr(ssl, "HAS_PSK", False), reason="pre-shared keys need Python 3.13")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_pre_shared_key_names_the_client(tmp_path: Path, version: ssl.TLSVersion) -> None:
    (tmp_path / "keys").write_text("device:" + "ab" * 16)
    context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("PSK")
    context.set_psk_client_callback(lambda _: ("device", b"\xab" * 16))
    pair = Pair(TlsSettings(psk_file=tmp_path / "keys", username_from="psk"), context)
    pair.handshake(b"x")
    assert pair.data == b"x"
    assert pair.layer.identity is not None
    assert pair.layer.identity.username == "device"
