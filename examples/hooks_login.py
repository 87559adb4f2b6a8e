"""Decide who may connect: an async callback asks a service before the password file is asked.

Run it with `python examples/hooks_login.py`.
"""

import trio
import trio.lowlevel

from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.hooks.passwords import PasswordAuthenticator, parse_passwords, set_password
from trunkline.hooks.points import CLIENT_AUTHENTICATE
from trunkline.mqtt.reasons import Reason

hooks = Hooks()


async def ask_elsewhere(name: str, token: bytes) -> set[str]:
    await trio.lowlevel.checkpoint()  # a request over the network
    return {"operator"} if token == b"valid" else set()


@hooks.on("client.authenticate", priority=10, filter=lambda client, password: client.listener == "tokens")
async def by_token(client: ClientInfo, password: bytes | None) -> Allow | Deny:
    """The client waits for this; nobody else does."""
    roles = await ask_elsewhere(client.username or "", password or b"")
    if not roles:
        return Deny(Reason.BAD_USER_NAME_OR_PASSWORD)
    client.superuser = "operator" in roles
    client.attributes["roles"] = roles  # for callbacks that run later
    return ALLOW


def register_password_file(text: str) -> None:
    authenticator = PasswordAuthenticator(parse_passwords(text, "users"))
    hooks.add("client.authenticate", authenticator, filter=authenticator.concerns)


async def main() -> None:
    register_password_file(set_password("", "ada", "lovelace"))

    ada = ClientInfo("laptop", username="ada", listener="default")
    assert await hooks.decide_async(CLIENT_AUTHENTICATE, ada, b"lovelace") is ALLOW
    print("ada comes in with her password")
    answer = await hooks.decide_async(CLIENT_AUTHENTICATE, ada, b"byron")
    assert answer == Deny(Reason.BAD_USER_NAME_OR_PASSWORD)

    console = ClientInfo("console", username="ops", listener="tokens")
    assert await hooks.decide_async(CLIENT_AUTHENTICATE, console, b"valid") is ALLOW
    assert console.superuser
    print("the console comes in with its token")


if __name__ == "__main__":
    trio.run(main)
