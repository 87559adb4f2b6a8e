from trunkline.nats.errors import LineTooLong, NatsError, NoResponders, PayloadTooLarge, ProtocolError


def test_what_is_told() -> None:
    error = NoResponders("a.b")
    assert (str(error), error.subject) == ("nobody answers requests to 'a.b'", "a.b")
    assert {LineTooLong.answer, PayloadTooLarge.answer, ProtocolError.answer} == {
        "Maximum Control Line Exceeded",
        "Maximum Payload Violation",
        "Unknown Protocol Operation",
    }
    assert issubclass(ProtocolError, NatsError)
