"""Do in a program what `trunkline ctl` does. The argument, if any, is the broker's control socket.

Run it with `python examples/control.py [SOCKET]`.
"""

import sys

from trunkline.management.control_client import ControlClient
from trunkline.management.control_place import find

path = sys.argv[1] if sys.argv[1:] else find("trunkline")
with ControlClient(path) as broker:
    for session in broker.rows("sessions.list", connected=False):
        if session["queued"] > 1000:
            broker.call("sessions.end", client_id=session["client_id"])
    print(broker.node, "has", broker.call("status")["sessions"], "sessions")
