"""Access rules, and a callback that decides before them.

Run it with `python examples/hooks_access.py`.
"""

from trunkline.hooks import ALLOW, Allow, ClientInfo, Hooks
from trunkline.hooks.acl import Acl
from trunkline.hooks.acl_file import parse_rules
from trunkline.hooks.points import CLIENT_CHECK_ACL, Action

RULES = """
[[rule]]
permit = "allow"
topics = ["devices/%c/#"]             # everybody under the own client id

[[rule]]
permit = "allow"
user = ["ada", "bob"]
action = "subscribe"
topics = ["devices/#"]

[[rule]]
permit = "deny"
"""

hooks = Hooks()


@hooks.on("client.check_acl")
def operators(client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | None:
    return ALLOW if "operator" in client.attributes else None


def allowed(acl: Acl, client: ClientInfo, action: Action, topic: str) -> bool:
    """As in the broker: the callbacks first; when all of them pass, the rules."""
    decision = hooks.decide(CLIENT_CHECK_ACL, client, action, topic, 0, False)
    if decision is None:
        return acl.compile_for(client).check(action, topic)
    return decision is ALLOW


def main() -> None:
    acl = Acl(parse_rules(RULES))
    meter = ClientInfo("meter-1")
    ada = ClientInfo("laptop", username="ada")
    operator = ClientInfo("console", attributes={"operator": True})

    assert allowed(acl, meter, "publish", "devices/meter-1/power")
    assert not allowed(acl, meter, "publish", "devices/meter-2/power")
    assert not allowed(acl, meter, "subscribe", "devices/#")
    assert allowed(acl, ada, "subscribe", "devices/+/power")
    assert not allowed(acl, ada, "publish", "devices/meter-1/power")
    assert allowed(acl, operator, "publish", "anything")
    print("everybody has the rights of the rules, and no others")


if __name__ == "__main__":
    main()
