"""An application whose pages fail, in a separate process: prints its answers to some requests."""

from __future__ import annotations

import json

from flask import Blueprint
from sqlalchemy.exc import OperationalError

from mdv.config import Config
from web.app_factory import make_app
from web.page_base import configure_pages, current_user, make_pages_blueprint

SECRET = "what only the log may say"


class House:
    """A session cookie may be valid; the database cannot be asked."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def cookie_name(self) -> str:
        return "somebody"

    def find_user(self, secret: str) -> None:
        raise OperationalError("select", {}, Exception(SECRET))


def broken() -> str:
    raise TypeError(SECRET)


def main() -> None:
    pages = make_pages_blueprint(())
    pages.add_url_rule("/broken", "broken", broken)
    pages.add_url_rule("/asking", "asking", lambda: str(current_user()))
    for name in ("overview", "sign_in_form", "sign_out"):
        pages.add_url_rule(f"/{name}", name, lambda: "here")
    config = Config.from_environment({})
    app = make_app(config, House(config), [], Blueprint("health", __name__), pages)
    configure_pages(app, config, place="MDV", nav=[])
    client = app.test_client()
    client.set_cookie("somebody", "x")
    told = {}
    for name, path, part in (("page", "/broken", ""), ("part", "/broken", "true"), ("away", "/asking", "")):
        answer = client.get(path, headers={"X-Request-ID": "find-me", "HX-Request": part})
        told[name] = {"status": answer.status_code, "text": answer.text, "headers": dict(answer.headers)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
