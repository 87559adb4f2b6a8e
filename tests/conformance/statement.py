"""What one numbered statement of a specification is to this suite."""

from dataclasses import dataclass

SERVER = "server"
CLIENT = "client"
BOTH = "both"


@dataclass(frozen=True, slots=True)
class Statement:
    #: `MQTT-x.y.z-n` of 5.0, `MQTT3-x.y.z-n` of 3.1.1.
    id: str
    #: Whose duty it is. A test of a client's duty shows what the broker does when a client fails in it.
    binds: str
    summary: str
    #: Why no test of this suite shows it; empty when one must.
    unseen: str = ""


def client_only(id: str, summary: str) -> Statement:
    """A duty of clients that leaves nothing for a broker to do or to refuse."""
    return Statement(id, CLIENT, summary, "binds the client")
