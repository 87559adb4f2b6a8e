"""Brokers of tests over TLS and WebSocket, with certificates that nobody has to make."""

import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509

from tests.wire import Wire
from trunkline import testing
from trunkline.config.errors import ConfigError
from trunkline.testing.certificates import certificates

NAMED = "tls.client_certificates=required&tls.username_from=cn"


async def over_tls(b: testing.Broker, context: ssl.SSLContext, host: str = "localhost", name: str = "") -> Wire:
    stream = await trio.open_tcp_stream(b.host, b.listeners[name].port if name else b.port)
    return Wire(trio.SSLStream(stream, context, server_hostname=host))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
async def test_a_tls_listener_needs_no_settings(host: str) -> None:
    async with testing.broker(listeners=["tls://127.0.0.1:0"]) as b:
        assert b.url == f"mqtts://127.0.0.1:{b.port}"
        async with await over_tls(b, b.client_context(), host) as wire:
            await wire.connect("a")
        with pytest.raises(trio.BrokenResourceError) as caught:
            await over_tls_and_connect(b, ssl.create_default_context())
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)


async def over_tls_and_connect(b: testing.Broker, context: ssl.SSLContext) -> None:
    async with await over_tls(b, context) as wire:
        await wire.connect("a")


async def test_a_client_certificate_names_the_client_also_after_a_restart() -> None:
    async with testing.broker(listeners=[f"mqtts://127.0.0.1:0?{NAMED}"]) as b:
        for client in ("pump-7", "pump-8"):
            async with await over_tls(b, b.client_context(client)) as wire:
                await wire.connect("a")
                assert [(row.client_id, row.username) for row in b.clients] == [("a", client)]
            await b.restart()


async def test_what_the_settings_name_is_theirs(tmp_path: Path) -> None:
    other = x509.load_pem_x509_certificate(certificates().client("other").certificate.read_bytes())
    file = tmp_path / "mine.pem"
    file.write_bytes(b"".join(each.read_bytes() for each in certificates().client("other")))
    listeners: list[Any] = [
        {"url": "tls://127.0.0.1:0", "name": "mine", "tls": {"certificate": str(file), "max_version": "1.2"}},
        {"url": "tls://127.0.0.1:0", "name": "ready", "tls": {"max_version": "1.2"}},
        {"url": "tcp://127.0.0.1:0", "name": "plain"},
    ]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with testing.broker(listeners=listeners) as b:
        assert [each.url.partition(":")[0] for each in b.listeners.values()] == ["mqtts", "mqtts", "mqtt"]
        for name in ("mine", "ready"):
            raw_stream = await trio.open_tcp_stream(b.host, b.listeners[name].port)
            async with trio.SSLStream(raw_stream, context) as stream:
                await stream.do_handshake()
                shown: Any = stream.getpeercert(binary_form=True)
                serial = x509.load_der_x509_certificate(shown).serial_number
                assert stream.version() == "TLSv1.2"
            assert (serial == other.serial_number) == (name == "mine")


@pytest.mark.parametrize("listener", ["tls://127.0.0.1:0?nam=x", {"url": "wss://127.0.0.1:0", "tls": 5}])
async def test_wrong_settings_are_named_as_ever(listener: Any) -> None:
    with pytest.raises(ConfigError, match=r"listeners\[0\]"):
        async with testing.broker(listeners=[listener]):
            raise AssertionError("it started")


def test_they_are_made_once_also_when_threads_need_them_at_once() -> None:
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(certificates())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, made))) == 1
    assert certificates().client("a") is certificates().client("a")
    with pytest.raises(ValueError, match="cannot be the name"):
        certificates().client("../a")


def test_only_brokers_over_tls_pay_for_them_and_nothing_is_left() -> None:
    code = """
import sys
from trunkline import testing
with testing.broker(listeners=["ws://127.0.0.1:0"]):
    pass
assert not {"trustme", "cryptography", "trunkline.testing.certificates"} & sys.modules.keys()
with testing.broker(listeners=["tls://127.0.0.1:0"]) as b:
    print(b.certificates.authority.parent)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not Path(done.stdout.strip()).exists()


def test_without_its_library_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["trustme"] = None
from trunkline import testing
with testing.broker(listeners=["tls://127.0.0.1:0"]):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: this needs the library trustme: install trunkline[tls]"
