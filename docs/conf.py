"""Settings of Sphinx. `make docs` builds the pages: the documents at the top of the repository and those in `docs`."""

from pygments.lexer import RegexLexer, words
from pygments.token import Keyword, Name, Number, Operator, Punctuation, String, Text
from sphinx.application import Sphinx

from mdv import __version__
from mdv.rules.operators import SIGNS
from mdv.rules.parse import KEYWORDS

project = "MDV"
author = "the authors of MDV"
release = version = __version__

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
# Folders are named so that they are not searched.
exclude_patterns = [".*", "build", "docker", "mdv", "migrations", "ops", "tests", "web", "workers", "**/node_modules"]
myst_heading_anchors = 3
templates_path = ["templates"]

html_theme = "furo"
html_title = f"MDV {release}"
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False
html_show_copyright = False


class RuleLexer(RegexLexer):
    """Highlights the rule language."""

    name = "MDV rules"
    tokens = {  # noqa: RUF012
        "root": [
            (r"\s+", Text),
            (words([*KEYWORDS], prefix="(?i)", suffix=r"(?![\w-])"), Keyword),
            (r"'([^']|'')*'", String),
            (r"<[^\s<>]+>", Name.Namespace),
            (words(SIGNS), Operator),
            (r"-?[0-9][0-9.]*", Number),
            (r"[\w:-]+", Name),
            (r".", Punctuation),
        ]
    }


def setup(app: Sphinx) -> None:
    app.add_lexer("rule", RuleLexer)
