"""Is the record whole: what is missing in it, what was lost before it, which nodes are silent, and who lags behind."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from trunkline.analytics.jobs import job as jobs
from trunkline.analytics.jobs.job import Options, Seconds, job
from trunkline.analytics.jobs.records import Auditor, Finding, Run, runs
from trunkline.analytics.jobs.windows import microseconds
