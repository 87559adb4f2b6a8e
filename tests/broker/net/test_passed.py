"""A connection that nobody takes is refused, and closed."""

import socket

from trunkline.broker.net.passed import PassedConnection


def test_a_refused_client_can_read_why() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"CONNECT")
    passed = PassedConnection(ours, "tcp", None, None, b"", False, b"refused")
    passed.refuse()
    assert theirs.recv(100) == b"refused"
    assert theirs.recv(100) == b""
    theirs.close()
    passed.close()
    assert ours.fileno() < 0


def test_one_that_reads_nothing_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        while ours.send(bytes(65_536)):
            pass
    except BlockingIOError:
        pass
    PassedConnection(ours, "tcp", None, None, b"", False, b"refused").refuse()
    assert ours.fileno() < 0
    theirs.close()


def test_one_that_is_gone_is_closed() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.close()
    PassedConnection(ours, "tcp", None, None, b"", False, b"refused").refuse()
    assert ours.fileno() < 0
