"""`mdv batch` as an application for spark-submit: spark-submit --master … mdv_batch.py PATH …"""

from __future__ import annotations

import sys

from mdv.cli import main

if __name__ == "__main__":
    main(["batch", *sys.argv[1:]])
