"""Pages as a browser shows them: no table is cut off, on a wide screen or a narrow one."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.reporting.report import Report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: install chromium to look at the pages")
PAGES = ("index", "results", "ledger", "paper")
# a frame, as a browser's own window is never narrower than 500 pixels
FRAME = """<body style="margin: 0">
<iframe style="border: 0" width={width} height=2000 srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const frame = document.querySelector("iframe"), page = frame.contentDocument;
  page.querySelectorAll("details").forEach((part) => {{ part.open = true; }});
  const parts = [...page.querySelectorAll("table, p, dl, h1, h2, h3")];
  const shown = parts.filter((part) => part.getClientRects().length);
  const wide = shown.filter((part) => part.getBoundingClientRect().right > frame.clientWidth + 1);
  const said = {{
    tables: shown.filter((part) => part.tagName === "TABLE").length,
    cut: wide.map((part) => part.outerHTML.slice(0, 200)),
    width: page.documentElement.scrollWidth,
  }};
  document.body.innerHTML = `<pre id="said">${{JSON.stringify(said).replaceAll("<", "&lt;")}}</pre>`;
}};
</script>"""


def opened(address: str) -> tuple[str, list[str]]:
    """The page as it stands after its scripts, and what the console says."""
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1500,2000")
    command = [
        CHROMIUM,
        *flags,
        "--virtual-time-budget=3000",
        "--enable-logging=stderr",
        "--dump-dom",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def path_of(written: Report, name: str) -> Path:
    return next(iter(written.pages.values())) if name == "paper" else written.index.parent / f"{name}.html"


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off(written: Report, tmp_path: Path, name: str, width: int) -> None:
    frame, page = tmp_path / "frame.html", html.escape(path_of(written, name).read_text(encoding="utf-8"))
    frame.write_text(FRAME.format(width=width, page=page), encoding="utf-8")
    shown, _ = opened(frame.as_uri())
    found = re.search(r'id="said">(.*?)</pre>', shown, re.DOTALL)
    assert found is not None, shown[:500]
    said = json.loads(html.unescape(found[1]))
    assert (said["cut"], said["width"]) == ([], width)
    assert said["tables"] or name == "index"


@pytest.mark.parametrize("name", PAGES)
def test_the_console_is_silent(written: Report, name: str) -> None:
    assert opened(path_of(written, name).as_uri())[1] == []


def test_the_address_of_a_sorted_and_filtered_table_shows_it_again(written: Report) -> None:
    address = path_of(written, "results").as_uri()
    shown, complaints = opened(f"{address}?evidence=exploratory&sort=-2")
    assert complaints == []
    line = r'<tr data-paper[^>]*data-evidence="([^"]*)"([^>]*)>.*?data-sort="([^"]*)"'
    found = [
        (evidence, value)
        for evidence, rest, value in re.findall(line, shown, re.DOTALL)
        if "hidden" not in rest
    ]
    assert {evidence for evidence, _ in found} == {"exploratory"}
    values = [float(value) for _, value in found]
    assert len(values) > 2
    assert values == sorted(values, reverse=True)
