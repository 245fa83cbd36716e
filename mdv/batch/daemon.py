"""The process from which Spark forks its Python workers. It imports in advance everything that they need.

Otherwise each worker would spend seconds on imports, mostly on pandas: Arrow imports it at its first use, but nothing
here needs it. So this process hides pandas.
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

    pa.array([""])
    manager()
