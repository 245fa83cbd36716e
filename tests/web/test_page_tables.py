"""Tables that are stacked on narrow screens: every cell names its column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import web

TEMPLATES = sorted((Path(web.__file__).parent / "templates" / "pages").glob("*.html"))
TABLE = re.compile(r'<table class="[^"]*\bcards\b[^"]*">(.*?)</table>', re.DOTALL)
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
CELL = re.compile(r"<td((?:[^>{]|\{\{.*?\}\}|\{%.*?%\})*)>(</td>)?", re.DOTALL)


@pytest.mark.parametrize(
    "template", [path for path in TEMPLATES if TABLE.search(path.read_text("utf-8"))], ids=lambda path: path.stem
)
def test_the_cells_of_a_stacked_table_name_their_columns(template: Path) -> None:
    """The first cell is the title of the row. Cells with actions need no name."""
    for table in TABLE.findall(template.read_text("utf-8")):
        for row in ROW.findall(table.partition("</thead>")[2]):
            for attributes, is_empty in CELL.findall(row)[1:]:
                named = re.search(r'\bdata-name="[^"]+"', attributes) or re.search(
                    r'class="[^"]*\bactions\b', attributes
                )
                assert named or is_empty, f"<td{attributes}>"
