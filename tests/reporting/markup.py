"""Pages as tests read them."""

import html
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

LOADING = {"src", "srcset", "data", "poster", "action", "background"}


class Elements(HTMLParser):
    """Every element and its attributes, and whether all are closed."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def words(page: str) -> str:
    """The page as read: no tags, single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def check(page: Path) -> None:
    """The page is well formed and loads nothing, its links lead somewhere, and it can be read aloud."""
    text = page.read_text(encoding="utf-8")
    elements = Elements(text)
    assert elements.open == [], page
    ids = [attributes["id"] for _, attributes in elements.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), page
    tags = [tag for tag, _ in elements.elements]
    headings = [0, *(int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag))]
    assert all(after <= before + 1 for before, after in pairwise(headings)), page
    assert "@import" not in text
    assert "url(http" not in text
    for tag, attributes in elements.elements:
        assert tag not in {"link", "iframe", "img"}
        assert not LOADING & set(attributes), tag
        # a link may lead elsewhere, but nothing else may
        link = attributes.get("href") or attributes.get("xlink:href") or ""
        assert tag == "a" or not any(
            "http" in (value or "") for key, value in attributes.items() if not key.startswith("xmlns")
        )
        if tag == "a" and not link.startswith("http"):
            place, _, anchor = link.partition("?")[0].partition("#")
            target = page.parent / place if place else page
            assert target.exists(), link
            if anchor and target.suffix == ".html":
                assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), link
