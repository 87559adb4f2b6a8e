"""A cursor over the body of one packet.

It is used for every packet but the common forms of PUBLISH and its acknowledgements, which `trunkline.mqtt.decoder`
parses in place.
"""

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.strings import decode_string
from trunkline.mqtt.versions import Version


class Reader:
    """Reads `data[position:end]`. Reading past `end` means a malformed packet. `version` is None until CONNECT.
    `from_client` says which side sent the packet: some properties and reason codes depend on it.
    """

    __slots__ = ("data", "end", "from_client", "max_filters", "max_levels", "position", "strict", "version")

    def __init__(
        self,
        data: bytes,
        position: int,
        end: int,
        version: Version | None,
        *,
        from_client: bool = True,
        strict: bool = True,
        max_levels: int = 65_536,
        max_filters: int = 0,
    ) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.version = version
        self.from_client = from_client
        self.strict = strict
        self.max_levels = max_levels
        self.max_filters = max_filters

    def more(self) -> bool:
        return self.position < self.end

    def byte(self) -> int:
        position = self.position
        if position >= self.end:
            raise MalformedPacket("the packet ends too early")
        self.position = position + 1
        return self.data[position]

    def two_bytes(self) -> int:
        position = self.position
        self.position = after = position + 2
        if after > self.end:
            raise MalformedPacket("the packet ends within an integer")
        return self.data[position] << 8 | self.data[position + 1]

    def four_bytes(self) -> int:
        position = self.position
        self.position = after = position + 4
        if after > self.end:
            raise MalformedPacket("the packet ends within an integer")
        return int.from_bytes(self.data[position:after], "big")

    def variable_integer(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket("a variable byte integer has needless bytes")  # [MQTT-1.5.5-1]
                return value
        raise MalformedPacket("a variable byte integer has a fifth byte")

    def binary(self) -> bytes:
        length = self.two_bytes()
        position = self.position
        self.position = after = position + length
        if after > self.end:
            raise MalformedPacket("the packet ends within a string")
        return self.data[position:after]

    def string(self) -> str:
        return decode_string(self.binary(), self.strict)

    def packet_id(self) -> int:
        packet_id = self.two_bytes()
        if packet_id == 0:
            raise ProtocolError("packet identifier 0")  # [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT3-2.3.1-1]
        return packet_id

    def rest(self) -> bytes:
        position = self.position
        self.position = self.end
        return self.data[position : self.end]

    def finish(self) -> None:
        """Raises MalformedPacket when something is left over."""
        if self.position != self.end:
            raise MalformedPacket(f"{self.end - self.position} bytes more than the packet needs")
