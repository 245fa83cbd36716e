"""The build backend of the package: that of setuptools, which builds the scripts of the pages first (PEP 517)."""

from __future__ import annotations

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from web.assets.build_pages import build_pages, build_requirements

Settings = dict[str, Any] | None


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_sdist(config_settings), *build_requirements()]


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *build_requirements()]


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    build_pages()
    return str(build_meta.build_sdist(sdist_directory, config_settings))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    build_pages()
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
