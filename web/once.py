"""Hand a value from a form to the next page, which shows it once.

A page that answers a form directly would send the form again when it is reloaded, and create another secret. So the
form redirects, with the value in a cookie that the next page deletes. The cookie is signed with the CSRF token of the
session: a value that another site sets is ignored.
"""

from __future__ import annotations

from typing import Any

from flask import Response, after_this_request, request
from itsdangerous import BadData, URLSafeTimedSerializer

from web.pages.base import redirect_to, session

ONCE_SECONDS = 120
"""A page that does not load within this time does not show the value."""


def redirect_once(about: str, value: dict[str, Any], endpoint: str, **values: Any) -> Response:
    """Redirect to a page that shows `value` once. `about` names what it belongs to, such as "token-7"."""
    response = redirect_to(endpoint, **values)
    response.set_cookie(
        _cookie(about),
        _serializer(about).dumps(value),
        max_age=ONCE_SECONDS,
        httponly=True,
        samesite="Strict",
        secure=request.is_secure,
    )
    return response


def take_once(about: str) -> dict[str, Any] | None:
    """Return the value that a form left for this page, and delete it; None if there is none."""
    text = request.cookies.get(_cookie(about))
    if text is None or request.method != "GET":
        return None

    @after_this_request
    def forget(response: Response) -> Response:
        response.delete_cookie(_cookie(about), httponly=True, samesite="Strict", secure=request.is_secure)
        return response

    try:
        value: dict[str, Any] = _serializer(about).loads(text, max_age=ONCE_SECONDS)
    except BadData:
        return None
    return value


def _cookie(about: str) -> str:
    return f"mdv_once_{about}"


def _serializer(about: str) -> URLSafeTimedSerializer:
    found = session()
    return URLSafeTimedSerializer(found.csrf if found else "", salt=f"mdv once {about}")
