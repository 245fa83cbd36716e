"""The process that Spark's Python workers are forked from: with all imported that they need, they begin at once.

Otherwise each would spend seconds of its own on that, most of them on pandas, which Arrow looks for at its first use
and of which nothing is used here. So here there is none.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here")


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas())

    import pyarrow as pa
    from pyspark.daemon import manager

    import mdv.batch.decompose
    import mdv.batch.dumps
    import mdv.batch.read  # noqa: F401

    pa.array([""])
    manager()
