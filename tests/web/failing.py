"""An application whose pages fail, in a process of its own: tells on standard output how it answers some requests."""

from __future__ import annotations

import json

from flask import Blueprint
from sqlalchemy.exc import OperationalError

from mdv.config import Config
from web.assemble import assemble
from web.frame import furnish, make_pages, person

SECRET = "what only the log may say"


class House:
    """Somebody may have signed in; the database cannot tell who."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def cookie_name(self) -> str:
        return "somebody"

    def find_person(self, secret: str) -> None:
        raise OperationalError("select", {}, Exception(SECRET))


def broken() -> str:
    raise TypeError(SECRET)


def main() -> None:
    pages = make_pages(())
    pages.add_url_rule("/broken", "broken", broken)
    pages.add_url_rule("/asking", "asking", lambda: str(person()))
    for name in ("overview", "sign_in_form", "sign_out"):
        pages.add_url_rule(f"/{name}", name, lambda: "here")
    config = Config.from_environment({})
    app = assemble(config, House(config), [], Blueprint("health", __name__), pages)
    furnish(app, config, place="MDV", nav=[])
    client = app.test_client()
    client.set_cookie("somebody", "x")
    told = {}
    for name, path, part in (("page", "/broken", ""), ("part", "/broken", "true"), ("away", "/asking", "")):
        answer = client.get(path, headers={"X-Request-ID": "find-me", "HX-Request": part})
        told[name] = {"status": answer.status_code, "text": answer.text, "headers": dict(answer.headers)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
