"""What gunicorn serves for an LMR: each request has a thread, since SQLite waits for no event loop."""

import sys

from mdv.config import Config
from mdv.errors import NotStarted
from web.lmr.app import create_lmr_app

BOOT_ERROR = 3
"""By which gunicorn knows that it would be in vain to start again."""

try:
    app = create_lmr_app(Config.from_environment())
except NotStarted as error:
    print(f"mdv: {error.detail}", file=sys.stderr, flush=True)
    raise SystemExit(BOOT_ERROR) from None
