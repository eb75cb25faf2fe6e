"""The report leaves nothing out and fetches nothing."""

import html

import pytest

from tests.support.results import entry, results, row

pytest.importorskip("matplotlib")
from benchmarks import report


@pytest.fixture(scope="module")
def reported():
    """Results with every kind of cell."""
    return results(
        row("stem", jaxconv=entry(1.0, 1.0, 1.0), lax=entry(4.0, 4.0, 4.0)),
        row("other", jaxconv=entry(2.0, 2.0, 2.0), lax=entry(2.0, 2.0, 2.0)),
        row(
            "<odd>",
            op="weights",
            kind="grouped 2-D",
            jaxconv=entry(0.0123, 0.0123, 0.0123),
            lax={"status": "capped", "reason": 'took "long"'},
        ),
    )


def test_the_page_has_every_row_and_the_versions(reported):
    page = report.page(reported, "jaxconv")
    body = page[page.index("<tbody>") :]
    assert body.count("<tr>") == len(reported["rows"])
    for one in reported["rows"]:
        assert f">{html.escape(one['layer'])}</td><td>{one['op']}</td>" in body
    assert ">1000 (50%)<" in body
    assert '<td class="best">12.3 (50%)</td>' in body
    assert 'title="took &quot;long&quot;">capped<' in body
    assert ">not run<" in body
    for told in ("Some &amp; Sons", "jax 1.2.3", "0123456789ab", "&lt;cpu-small&gt;", "not there"):
        assert told in page
    assert page.count("<svg") == 2


def test_the_page_fetches_nothing(reported):
    page = report.page(reported, "jaxconv")
    for fetching in ("<script", "<link", "<img", "@import", "src=", "<iframe"):
        assert fetching not in page
    assert 'href="http' not in page
