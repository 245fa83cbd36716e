"""The settings of the current application, an MDP or an LMR."""

from __future__ import annotations

from typing import cast

from flask import current_app

from mdv.config import Config


def current_config() -> Config:
    """Return the settings of the current application."""
    return cast(Config, current_app.extensions["mdv"].config)
