"""Minutes: what was done is in the figures, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdv.db.figures import add_figures, forget_figures, read_figures
from mdv.figures import BATCH, stage
from workers.minutes import Minutes

if TYPE_CHECKING:
    from conftest import Mdp

HOUR = 3600.0


def test_what_a_process_does_is_added_up_for_its_minute(mdp: Mdp) -> None:
    minutes = Minutes(mdp.engine)
    minutes.note()
    with mdp.engine.begin() as connection:
        assert read_figures(connection, HOUR) == [], "where nothing happens nothing is written"
    for documents in (3, 4):
        BATCH.observe(documents)
        with stage("answer"):
            pass
        minutes.note()
    minutes.note()
    with mdp.engine.begin() as connection:
        found = read_figures(connection, HOUR)
    assert sum(minute.documents for minute in found) == 7 and sum(minute.transactions for minute in found) == 2
    assert all(minute.seconds > 0 and minute.each_ms > 0 for minute in found)


def test_figures_of_several_are_added_and_the_old_go(mdp: Mdp) -> None:
    with mdp.engine.begin() as connection:
        add_figures(connection, 1, 10, 0.5, lag=3.0, waiting=7)
        add_figures(connection, 2, 20, 0.25, lag=1.0, waiting=9)
    (minute,) = _minutes(mdp)
    assert (minute.transactions, minute.documents, minute.seconds, minute.lag, minute.waiting) == (3, 30, 0.75, 3.0, 9)
    assert minute.each_ms == 25.0
    mdp.run("update figures set at = at - interval '8 days'")
    with mdp.engine.begin() as connection:
        forget_figures(connection)
    assert mdp.one("select count(*) from figures") == 0


def _minutes(mdp: Mdp) -> list[object]:
    with mdp.engine.begin() as connection:
        return list(read_figures(connection, HOUR))
