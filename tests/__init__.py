"""Tests of MDV. A package, so that tests import helpers as `tests.support.<module>`."""
