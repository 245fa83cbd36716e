"""The WSGI application of an LMR. Each request runs in a thread, since SQLite calls block."""

import sys

from mdv.gc_tuning import gc_paused

with gc_paused():
    from mdv.config import Config
    from mdv.errors import NotStarted
    from web.lmr.app import create_lmr_app

BOOT_ERROR = 3
"""With this exit code, gunicorn does not start the worker again."""

try:
    app = create_lmr_app(Config.from_environment())
except NotStarted as error:
    print(f"mdv: {error.detail}", file=sys.stderr, flush=True)
    raise SystemExit(BOOT_ERROR) from None
