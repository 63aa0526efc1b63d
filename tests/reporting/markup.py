"""Pages as tests read them."""

import html
import re
from html.parser import HTMLParser

LOADING = {"src", "srcset", "data", "poster", "action", "background"}


class Elements(HTMLParser):
    """Every element and its attributes, and whether all are closed."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def words(page: str) -> str:
    """The page as read: no tags, single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
