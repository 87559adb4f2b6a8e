"""Stand-ins for sessions."""

from dataclasses import dataclass

from trunkline.router import Router


@dataclass(eq=False)
class Client:
    client_id: str
    online: bool = True
    durable: bool = False

    def __repr__(self) -> str:
        return self.client_id


def receivers(router: Router[Client], topic: str) -> list[str]:
    """Who gets a message of this topic, sorted."""
    return sorted(target.subscriber.client_id for target in router.match(topic).targets)
