"""The start page of the administration."""

from __future__ import annotations

from flask import Response

from mdv.inspect.sql.administration import count_for_administration
from web.pages.base import pages, render_page, require_administrator
from web.services import services

EXPIRY_WARNING_DAYS = 14
"""Tokens that expire within this many days are counted."""


@pages.get("/admin")
def administration() -> Response:
    require_administrator()
    with services().single.connect() as connection:
        counts = count_for_administration(connection, EXPIRY_WARNING_DAYS)
    return render_page("admin.html", counts=counts, days=EXPIRY_WARNING_DAYS)
