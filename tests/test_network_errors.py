import ssl

import pytest
import trio

from trunkline.network_errors import NETWORK_ERRORS, reason_of


@pytest.mark.parametrize(
    ("alert", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "the server ended TLS: certificate required"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "the server ended TLS: bad certificate"),
        ("WRONG_VERSION_NUMBER", "TLS failed, WRONG_VERSION_NUMBER: does the server speak TLS at this port?"),
    ],
)
def test_an_alert_of_the_server_is_told_in_words(alert: str, words: str) -> None:
    inner = ssl.SSLError(1, f"[SSL: {alert}] {alert.lower()} (_ssl.c:2580)")
    inner.reason = alert
    error = trio.BrokenResourceError()
    error.__cause__ = inner
    assert reason_of(error) == words


async def test_of_several_addresses_the_first_is_told() -> None:
    with pytest.raises(NETWORK_ERRORS) as caught:
        await trio.open_tcp_stream("127.0.0.1", 1)
    assert reason_of(caught.value) == "Connection refused"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (OSError("odd"), "odd"),
        (trio.ClosedResourceError(), "ClosedResourceError"),
        (trio.BrokenResourceError("gone"), "gone"),
    ],
)
def test_words(error: Exception, words: str) -> None:
    assert reason_of(error) == words
