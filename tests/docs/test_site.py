"""The site: it builds without a warning, and no link of its pages or of the report is broken."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import dprepro

REPOSITORY = Path(__file__).parents[2]
LINK = re.compile(r'\b(?:href|src)="([^"]+)"')
NAME = re.compile(r'\b(?:id|name)="?([^"\s>]+)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    made = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return folder


def broken_links(site: Path) -> set[str]:
    """Links of all pages to files or places that the site lacks; 'page: link' each."""
    pages = {page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"}
    names = {page.resolve(): set(NAME.findall(text)) for page, text in pages.items()}
    broken = set()
    for page, text in pages.items():
        for link in LINK.findall(text):
            parts = urlsplit(link.replace("&amp;", "&"))
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in names and anchor not in names[target]):
                broken.add(f"{page.relative_to(site)}: {link}")
    return broken


def test_no_link_is_broken(site: Path) -> None:
    assert broken_links(site) == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="(https?:)?//', page.read_text())
        loaded += re.findall(r'<link\b[^>]*rel="stylesheet"[^>]*href="https?://', page.read_text())
        assert not loaded, page


def test_the_api_has_every_promised_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    assert all(f'id="dprepro.{name}"' in page for name in dprepro.__all__)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.html").write_text('<a href="two.html#here"></a><a href="two.html#there"></a>')
    (tmp_path / "two.html").write_text('<p id="here"></p><img src="gone.svg">')
    assert broken_links(tmp_path) == {"one.html: two.html#there", "two.html: gone.svg"}
