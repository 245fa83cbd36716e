"""The process that Spark's Python workers are forked from: with all imported that they need, they begin at once.

Otherwise each would spend three seconds of its own on that, most of them on pandas, which Arrow looks for at its first
use and of which nothing is used here.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.daemon import manager

import mdv.batch.decompose
import mdv.batch.dumps
import mdv.batch.read  # noqa: F401

pa.array([""])

if __name__ == "__main__":
    manager()
