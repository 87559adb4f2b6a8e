"""How Spark tells what is wrong with the options of a query."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from trunkline.analytics.options import OptionError


@contextmanager
def in_one_line() -> Generator[None]:
    """In a process of Spark's own, an `OptionError` loses its traceback, so that the first line that a user sees is its
    text."""
    try:
        yield
    except OptionError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            # looked at when the error has been caught; then the process ends
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
