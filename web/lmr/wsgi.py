"""What gunicorn serves for an LMR: each request has a thread, since SQLite waits for no event loop."""

from mdv.config import Config
from web.lmr.app import create_lmr_app

app = create_lmr_app(Config.from_environment())
