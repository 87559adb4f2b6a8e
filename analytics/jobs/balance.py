"""How evenly the nodes of a cluster carry the load."""

from typing import Final

from pydantic import Field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import job as jobs
from trunkline.analytics.jobs.job import Names, Options, Seconds, job
from trunkline.analytics.jobs.windows import CLOCK, heard, window

#: Loads that are counted, by the kind of event that counts for them.
COUNTED: Final = {
    "messages_in": "message.publish",
    "messages_out": "message.delivered",
    "connects": "client.connected",
    "disconnects": "client.disconnected",
    "takeovers": "session.taken_over",
    "drops": "message.dropped",
}
#: Payload bytes, by the kind of event that has them.
BYTES: Final = {"bytes_in": "message.publish", "bytes_out": "message.delivered"}
#: Loads that a node reads off itself: the last reading in the window counts.
READ: Final = {"connections": "connections.count", "sessions": "sessions.count"}
LOADS: Final = (*COUNTED, *BYTES, *READ)
