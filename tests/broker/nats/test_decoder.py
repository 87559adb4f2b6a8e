"""What is counted of a client's operations."""

from trunkline.broker.nats.decoder import OperationDecoder


def test_messages_are_counted() -> None:
    decoder = OperationDecoder(4096, 100)
    assert len(decoder.feed(b"PUB a 1\r\nx\r\nPING\r\nHPUB a 0 0\r\n\r\nPUB a 5\r\nab")) == 3
    assert (decoder.messages, decoder.completed, decoder.missing) == (2, 1, 5)
    assert decoder.buffered == len(b"PUB a 5\r\nab")
    assert decoder.feed(b"c") == []
    assert (decoder.completed, decoder.missing) == (1, 4)
    assert len(decoder.feed(b"de\r\nPU")) == 1
    assert (decoder.messages, decoder.completed, decoder.missing) == (3, 2, 0)
    assert decoder.error is None


def test_limits_hold() -> None:
    for limits, data in (((128, 100), b"PUB a 101\r\n"), ((128, 100), b"SUB " + b"a" * 200)):
        decoder = OperationDecoder(*limits)
        assert decoder.feed(data) == []
        assert decoder.error is not None


def test_only_what_comes_first_may_be_another_protocol() -> None:
    http = b"GET / HTTP/1.1"
    for before, words in ((b"", "this looks like HTTP"), (b"SUB ", "")):
        decoder = OperationDecoder(4096, 100)
        decoder.feed(before)
        decoder.feed(http)
        assert decoder.another_protocol(http) == words
