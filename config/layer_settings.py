"""Settings of the layers between a listener's sockets and its protocol."""

from typing import Literal, Self

from pydantic import model_validator

from trunkline.config.section import Section, key
from trunkline.config.units import Duration, Flag, Network, Origin, Size


class WebSocketSettings(Section):
    """WebSocket, at listeners whose URL begins with `ws`, `wss`, `nats+ws` or `nats+wss`."""

    origins: tuple[Origin, ...] = key(
        (),
        "Web pages from these origins may connect, such as `https://app.example.com`. When it is empty, all may. "
        "Clients other than browsers need none.",
    )
    compression: Flag = key(
        False,
        "Whether messages are compressed (permessage-deflate) for clients that offer it. This takes much processor "
        "time.",
    )
    max_header_size: Size = key(
        8_192, "Largest request to open a WebSocket, with its cookies.", "bytes", ge=512, le=65_536
    )
    upgrade_timeout: Duration = key(
        10.0, "How long a client may take for the request to open a WebSocket.", "seconds", gt=0
    )


class ProxyProtocolSettings(Section):
    """Load balancers that say in a PROXY protocol header (version 1 or 2) who the client is."""

    trusted: tuple[Network, ...] = key(
        (),
        "Addresses of the load balancers. Each connection must come from one of them and begin with a header, which "
        "says who the client is. When it is empty, there are no headers.",
    )
    timeout: Duration = key(5.0, "How long the header may take to come.", "seconds", gt=0)
    username_from: Literal["", "cn"] = key(
        "",
        "What the user name of a client is whose certificate the load balancer has verified: its common name (`cn`). "
        "Such a client needs no password. Empty: it has the user name of its CONNECT.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.username_from and not self.trusted:
            raise ValueError("username_from needs trusted")
        return self
