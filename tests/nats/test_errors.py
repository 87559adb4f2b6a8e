import pytest

from trunkline.nats.errors import (
    LineTooLong,
    NatsError,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    ProtocolError,
)


def test_what_is_told() -> None:
    error = NoResponders("a.b")
    assert (str(error), error.subject) == ("nobody answers requests to 'a.b'", "a.b")
    assert str(NoResponders("a", "no stream")) == "nobody answers requests to 'a': no stream"
    assert {LineTooLong.answer, PayloadTooLarge.answer, ProtocolError.answer} == {
        "maximum control line exceeded",
        "Maximum Payload Violation",
        "Unknown Protocol Operation",
    }
    assert issubclass(ProtocolError, NatsError)


@pytest.mark.parametrize(
    ("text", "subject", "queue", "is_publishing"),
    [
        ('Permissions Violation for Publish to "a.b"', "a.b", "", True),
        ('permissions violation for publish to "a.b"', "a.b", "", True),
        ('Permissions Violation for Subscription to "a.*"', "a.*", "", False),
        ('Permissions Violation for Subscription to "a.*" using queue "q.1"', "a.*", "q.1", False),
        ("Permissions Violation", "", "", False),
    ],
)
def test_what_is_denied(text: str, subject: str, queue: str, is_publishing: bool) -> None:
    error = PermissionDenied(text)
    assert str(error) == text
    assert (error.subject, error.queue, error.is_publishing) == (subject, queue, is_publishing)
