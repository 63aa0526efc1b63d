"""Pages as a browser shows them: nothing is cut off on a wide screen or a narrow one.

What a reader asks is answered on the first screen or after one click.
"""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dprepro.pipeline.reporting.report import Report
from tests.reporting.lookup import page_of
from tests.reporting.made_up import dpsgd
from tests.reporting.markup import words

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NO BROWSER: install chromium to look at the pages")
REPORTS = Path(__file__).parents[2] / "reports"  # as committed
LEGIBLE = 6.0  # pixels, of a figure's smallest letters
# Each page in a frame, as a browser's own window is never narrower than 500 pixels: what its first screen
# says, from the top or from where a link leads to, and with all open what is cut off.
FRAME = '<iframe id="{}" data-place="{}" style="border: 0" width={} height=900 srcdoc="{}"></iframe>'
MEASURE = """<script>
onload = () => {
  const said = {};
  // where what is shown of a part ends: at its table's box, as nobody sees that there is more to the right
  const edge = (part, frame) => {
    const box = part.parentElement.closest(".scroll");
    return box ? Math.min(frame.clientWidth, box.getBoundingClientRect().right) : frame.clientWidth;
  };
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const shown = (part) => part.getClientRects().length;
    const place = page.getElementById(frame.dataset.place);
    for (let part = place; part; part = part.parentElement) part.open = true;
    if (place) place.scrollIntoView();
    const said_in = "h1, h2, h3, p, a, li, dt, dd, th, td, summary";
    const seen = [...page.querySelectorAll(said_in)].filter((part) => {
      const box = part.getBoundingClientRect();
      return shown(part) && box.top >= 0 && box.top < 900;
    });
    const words = seen.map((part) => part.textContent).join(" ").replace(/\\s+/g, " ");
    const links = seen.map((part) => part.getAttribute("href")).filter((link) => link);
    page.querySelectorAll("details").forEach((part) => { part.open = true; });
    const parts = [...page.querySelectorAll("table, p, dl, h1, h2, h3, td, dd, .panels > svg")].filter(shown);
    const letters = [...page.querySelectorAll("svg text")].filter(shown);
    const size = (part) => parseFloat(getComputedStyle(part).fontSize) * part.getScreenCTM().a;
    said[frame.id] = {
      words, links,
      tables: parts.filter((part) => part.tagName === "TABLE").length,
      cut: parts.filter((part) => part.getBoundingClientRect().right > edge(part, frame) + 1)
        .map((part) => part.outerHTML.slice(0, 200)),
      width: page.documentElement.scrollWidth,
      beyond: [...page.querySelectorAll("body *")].filter(shown)
        .filter((part) => part.getBoundingClientRect().right > frame.clientWidth + 1)
        .map((part) => part.outerHTML.slice(0, 200)).slice(0, 5),
      smallest: Math.min(...letters.map(size).filter((pixels) => pixels > 0)),
    };
  }
  document.body.innerHTML = `<pre id="said">${JSON.stringify(said).replaceAll("<", "&lt;")}</pre>`;
};
</script>"""


def opened(address: str, width: int = 1500) -> tuple[str, list[str]]:
    """The page as it stands after its scripts, and what the console says."""
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},900")
    still = ("--virtual-time-budget=3000", "--enable-logging=stderr", "--dump-dom")
    done = subprocess.run([CHROMIUM, *flags, *still, address], capture_output=True, text=True, timeout=600)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def measured(folder: Path, pages: Mapping[str, tuple[Path, str, int]]) -> dict[str, Any]:
    """What `MEASURE` says of pages, each by its name: (file, place that a link leads to or '', width)."""
    frames = [
        FRAME.format(name, place, width, html.escape(path.read_text(encoding="utf-8")))
        for name, (path, place, width) in pages.items()
    ]
    # without its encoding a browser guesses, and now and then takes every ε for two letters
    whole = f'<meta charset="utf-8"><body>{"".join(frames)}{MEASURE}'
    (folder / "frames.html").write_text(whole, encoding="utf-8")
    shown, _ = opened((folder / "frames.html").as_uri())
    told = re.search(r'id="said">(.*?)</pre>', shown, re.DOTALL)
    assert told is not None, shown[:500]
    said: dict[str, Any] = json.loads(html.unescape(told[1]))
    return said


@pytest.mark.parametrize("committed", [False, True])
def test_nothing_is_cut_off_and_every_letter_can_be_read(
    written: Report, tmp_path: Path, committed: bool
) -> None:
    folder = REPORTS if committed else written.index.parent
    papers = [] if committed else [page_of(written)]  # those that are committed take a browser minutes
    paths = [*(folder / name for name in ("index.html", "results.html", "ledger.html")), *papers]
    pages = {f"{path.stem}-{width}": (path, "", width) for path in paths for width in (1400, 400)}
    for name, said in measured(tmp_path, pages).items():
        assert (said["cut"], said["width"]) == ([], pages[name][2]), f"{name}: {said['beyond']}"
        assert said["tables"] or name.startswith("index")
        assert (said["smallest"] or LEGIBLE) >= LEGIBLE, name


def test_a_link_to_a_row_opens_it_and_the_console_is_silent(written: Report) -> None:
    shown, complaints = opened(f"{page_of(written).as_uri()}#row-davody-t5-lenet5-epsilon-7")
    assert complaints == []
    assert re.search(
        r'<details[^>]* open="">(?:(?!<details).)*id="row-davody-t5-lenet5-epsilon-7"', shown, re.DOTALL
    )


def test_the_address_of_a_sorted_and_filtered_table_shows_it_again(written: Report) -> None:
    shown, complaints = opened(
        f"{(written.index.parent / 'results.html').as_uri()}?evidence=exploratory&sort=-3"
    )
    assert complaints == []
    lines = re.findall(
        r'<tr data-paper[^>]*data-evidence="([^"]*)"([^>]*)>.*?data-sort="([^"]*)"', shown, re.DOTALL
    )
    left = [(evidence, float(value)) for evidence, rest, value in lines if "hidden" not in rest]
    assert {evidence for evidence, _ in left} == {"exploratory"}
    values = [value for _, value in left]
    assert len(values) > 2
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("name", "word"), [("results", dpsgd.LITERAL), ("ledger", dpsgd.PUBLIC)])
def test_a_search_leaves_the_lines_with_its_words(written: Report, name: str, word: str) -> None:
    shown, complaints = opened(f"{(written.index.parent / name).as_uri()}.html?search={quote(word)}")
    assert complaints == []
    lines = re.findall(r'<tr data-paper[^>]*?( hidden="")?>(.*?)</tr>', shown, re.DOTALL)
    left = [text for hidden, text in lines if not hidden]
    assert 0 < len(left) < len(lines)
    assert left == [text for _, text in lines if word in words(text)]


def test_a_narrow_screen_shows_the_first_lines_and_a_button_for_the_others(
    written: Report, tmp_path: Path
) -> None:
    text = (written.index.parent / "results.html").read_text(encoding="utf-8")
    start, end = text.index("<tbody>") + len("<tbody>"), text.index("</tbody>")
    page = tmp_path / "results.html"
    page.write_text(text[:end] + 3 * text[start:end] + text[end:], encoding="utf-8")
    shown, _ = opened(page.as_uri(), 500)
    hidden = [bool(found) for found in re.findall(r'<tr data-paper[^>]*?( hidden="")?>', shown)]
    assert len(hidden) > 100
    assert hidden == [False] * 50 + [True] * (len(hidden) - 50)
    assert f'<button type="button">Show {len(hidden) - 50} more</button>' in shown
    wide, _ = opened(page.as_uri())
    assert not re.search(r'<tr data-paper[^>]* hidden="">', wide)


def test_a_readers_four_questions_are_answered_at_once_or_after_one_click(tmp_path: Path) -> None:
    """On the pages as they are committed."""
    papers, row = REPORTS / "papers", "davody-t5-ln-lenet5"
    said = measured(
        tmp_path,
        {
            "index": (REPORTS / "index.html", "", 1400),
            "paper": (papers / "davody2020.html", "", 1400),
            "results": (REPORTS / "results.html", "", 1400),
            "row": (papers / "davody2020.html", f"row-{row}", 1400),
        },
    )
    first, links = said["index"]["words"], said["index"]["links"]
    # does a paper reproduce?
    assert "papers/davody2020.html" in links
    assert re.search(r"\d+\s+reproduced", said["paper"]["words"], re.DOTALL)
    # below the first screen
    whole, paper = (
        re.sub("<[^>]+>", " ", path.read_text())
        for path in (REPORTS / "index.html", papers / "davody2020.html")
    )
    assert re.search(r"\d+\s+wait for a GPU\s+about [\d,]+ GPU hours", whole)
    assert re.search(r"\d+\s+printed values.*\d+\s+agree.*\d+\s+below", paper, re.DOTALL)
    # what still waits, and for what?
    assert re.search(r"\d+ printed values wait for a GPU", first)
    assert "results.html?verdict=waits%20for%20a%20GPU" in links
    # what does a number really buy? how is its row run again?
    assert "results.html" in links
    results = (REPORTS / "results.html").read_text(encoding="utf-8")
    assert f'href="papers/davody2020.html#row-{row}-epsilon-3"' in results
    assert re.search(r"proven ε", said["results"]["words"])
    assert re.search(r"claimed ε [\d.]+, proven ε ≤ [\d.]+", said["row"]["words"])
    assert f"dprepro repro {row}" in said["row"]["words"]
