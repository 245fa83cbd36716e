"""What gunicorn serves. gevent comes first, so that waiting callers cost no thread."""

from gevent import monkey

monkey.patch_all()

from mdv.config import Config  # noqa: E402
from web.app import create_app  # noqa: E402

app = create_app(Config.from_environment())
