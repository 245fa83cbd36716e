"""The WSGI application of an MDP. gevent patches the standard library first: waiting requests need no thread."""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402

from mdv.gc_tuning import gc_paused  # noqa: E402

with gc_paused():
    from mdv.config import Config
    from web.app import create_app

# Let offload threads release the interpreter lock after 1 ms instead of 5 ms.
sys.setswitchinterval(0.001)

app = create_app(Config.from_environment(), exits_if_restored=True)
