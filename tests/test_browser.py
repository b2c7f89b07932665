"""The report in a real browser: wide and on a phone, light and dark. Pictures go to the folder named by
DMKL_SCREENSHOTS, or to the test's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, chromium
from report_cases import CASES

from dmkl.report import write_report

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("DMKL_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_trouble_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><div style="width:2000px">wide</div>'
        '<img src="http://127.0.0.1:9/x.png"><script>console.log(1); nothing()</script>'
    )
    seen = browser.look(page.as_uri(), width=390, dark=False)
    assert seen.overflow > 1000
    assert "http://127.0.0.1:9/x.png" in seen.requests
    assert len(seen.complaints) >= 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_report_is_readable_everywhere(browser: Browser, case: str, tmp_path: Path, pictures: Path) -> None:
    report = tmp_path / "report.html"
    write_report(report, CASES[case]())
    looks = {}
    for width in (1280, 390):
        for dark in (False, True):
            seen = browser.look(report.as_uri(), width=width, dark=dark)
            outside = [url for url in seen.requests if not url.startswith("data:")]
            assert outside == [report.as_uri()]
            assert seen.complaints == []
            assert seen.overflow <= 0, f"{seen.overflow} pixels wider than {width}"
            name = f"{re.sub('[^a-z0-9]+', '-', case.lower())}-{width}-{'dark' if dark else 'light'}.png"
            (pictures / name).write_bytes(seen.picture)
            looks[width, dark] = seen.picture
    assert len(set(looks.values())) == 4  # dark is another picture, and so is a phone
    print(f"\n{case}: {len(looks)} pictures in {pictures}")
