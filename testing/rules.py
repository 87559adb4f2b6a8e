"""Faults of the wire: what they do to packets, to bytes and to connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.versions import Version
from trunkline.testing.fault import Fault, Owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.packets import Packet as Decoded
    from trunkline.testing.links import Link, Links
    from trunkline.testing.packets import Direction, Packet
    from trunkline.testing.selecting import Selection
    from trunkline.testing.ways import Way

# Packets


class PacketFault(Fault):
    """Happens to packets, one by one. The base lets none of them arrive."""

    def __init__(
        self,
        text: str,
        owner: Owner,
        selection: Selection,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(f"{text} {selection}", owner, times, after)
        self.selection = selection

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.rules.append(self)

    def end(self, links: Links, hooks: Hooks) -> None:
        links.rules.remove(self)

    def concerns(self, link: Link) -> bool:
        return not self.over and self.selection.concerns(link.client_id)

    def judge(self, packet: Packet, way: Way) -> bool:
        try:
            chosen = self.selection.takes(packet)
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            self.failed(error)
            return False
        if not chosen or not self.happens():
            return False
        self.act(packet, way)
        return True

    def act(self, packet: Packet, way: Way) -> None:
        """Deal with a packet that was chosen. What is not put on its way is lost."""
        way.link.links.on_loss(packet)


class Delay(PacketFault):
    seconds = 0.0

    def act(self, packet: Packet, way: Way) -> None:
        way.put(packet.data, self.seconds)


class Duplicate(PacketFault):
    copies = 1

    def act(self, packet: Packet, way: Way) -> None:
        again = packet.data
        if packet.type is PacketType.PUBLISH and again[0] & 0x06:  # [MQTT-3.3.1-1]
            again = bytes((again[0] | 0x08,)) + again[1:]
        way.put(packet.data)
        for _ in range(self.copies):
            way.put(again)


class Reorder(PacketFault):
    """Holds one packet back, of each connection and direction, until so many others of the kind have passed."""

    behind = 1

    def __init__(
        self,
        text: str,
        owner: Owner,
        selection: Selection,
        times: int | None = None,
        after: int = 0,
    ) -> None:
        super().__init__(text, owner, selection, times, after)
        #: What is held, and how many are still to pass before it.
        self._held: dict[Way, tuple[bytes, int]] = {}

    def concerns(self, link: Link) -> bool:
        held = link.from_client in self._held or link.to_client in self._held
        return held or super().concerns(link)

    def judge(self, packet: Packet, way: Way) -> bool:
        if way not in self._held:
            return super().judge(packet, way)
        try:
            if not self.selection.takes(packet):
                return False
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            self.failed(error)
            return False
        data, missing = self._held[way]
        way.put(packet.data)
        if missing > 1:
            self._held[way] = (data, missing - 1)
        else:
            del self._held[way]
            way.put(data)
        return True

    def act(self, packet: Packet, way: Way) -> None:
        self._held[way] = (packet.data, self.behind)

    def end(self, links: Links, hooks: Hooks) -> None:
        super().end(links, hooks)
        for way, (data, _) in self._held.items():
            way.put(data)
            way.release_soon()
        self._held.clear()


class Cut(PacketFault):
    """Resets the connection at a packet."""

    before = True

    def act(self, packet: Packet, way: Way) -> None:
        if self.before:
            super().act(packet, way)
        else:
            way.put(packet.data)
        way.cut()


class Corrupt(PacketFault):
    """Lets other bytes arrive."""

    @staticmethod
    def change(data: bytes) -> bytes:
        """The first byte behind the fixed header is inverted; of a packet that is nothing else, its first byte."""
        position = 1 + next(at for at, byte in enumerate(data[1:], 1) if byte < 0x80)
        position %= len(data)
        return data[:position] + bytes((data[position] ^ 0xFF,)) + data[position + 1 :]

    def act(self, packet: Packet, way: Way) -> None:
        try:
            way.put(bytes(self.change(packet.data)))
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            self.failed(error)
            way.put(packet.data)


# Connections


class Inject(Fault):
    """Has clients get what the broker has not sent."""

    def __init__(self, text: str, owner: Owner, client: str | None, packet: Decoded | bytes) -> None:
        super().__init__(text, owner)
        self._client = client
        self._packet = packet

    def begin(self, links: Links, hooks: Hooks) -> None:
        """
        Raises:
            LookupError: the client is not connected.
        """
        for link in links:
            if not link.unknown and self._client in (None, link.client_id) and not link.over:
                packet = self._packet
                link.to_client.put(packet if isinstance(packet, bytes) else encode(packet, link.version or Version.V5))
                link.to_client.release_soon()
                self.count()
        if not self.hits:
            who = "no client" if self._client is None else f"no client {self._client!r}"
            raise LookupError(f"{who} is connected")


class CutNow(Fault):
    """Resets the connections that there are."""

    def __init__(self, text: str, owner: Owner, client: str | None) -> None:
        super().__init__(text, owner)
        self._client = client

    def begin(self, links: Links, hooks: Hooks) -> None:
        for link in links:
            if self._client in (None, link.client_id):
                link.reset_soon()
                self.count()


class CutAfterBytes(Fault):
    """Resets a connection when so many bytes have passed since."""

    def __init__(
        self,
        text: str,
        owner: Owner,
        client: str | None,
        way: Sequence[Direction],
        size: int,
        times: int,
    ) -> None:
        super().__init__(text, owner, times)
        self._client = client
        self._directions = way
        self._size = size
        self._passed: dict[Link, int] = {}

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.meters.append(self)

    def end(self, links: Links, hooks: Hooks) -> None:
        links.meters.remove(self)

    def concerns(self, link: Link) -> bool:
        return not self.over and self._client in (None, link.client_id)

    def allows(self, link: Link, direction: Direction, size: int) -> int | None:
        if direction not in self._directions:
            return None
        passed = self._passed.get(link, 0)
        if passed + size < self._size:
            self._passed[link] = passed + size
            return None
        self._passed.pop(link, None)
        self.count()
        return self._size - passed


class Hold(Fault):
    """A state of connections: in some directions nothing goes on, or single bytes."""

    def __init__(self, text: str, owner: Owner, client: str | None) -> None:
        super().__init__(text, owner)
        self._client = client
        self.stops: frozenset[Direction] = frozenset()
        self.drips: dict[Direction, float] = {}
        self.hides_end = False

    def begin(self, links: Links, hooks: Hooks) -> None:
        links.conditions.append(self)
        links.update()

    def end(self, links: Links, hooks: Hooks) -> None:
        links.conditions.remove(self)
        links.update()

    def concerns(self, link: Link) -> bool:
        return self._client in (None, link.client_id)

    def took_hold(self, link: Link) -> None:
        self.count()
