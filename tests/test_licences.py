import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_locked_package_is_listed_with_a_licence() -> None:
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    table = [line.split("|") for line in (ROOT / "docs/licences.md").read_text().splitlines() if "|" in line]
    listed = {name.strip() for row in table[2:] for name in row[2].split(",")}
    assert listed == locked


def test_what_is_under_the_gpl_is_named_above_the_list() -> None:
    text, _, table = (ROOT / "docs/licences.md").read_text().partition("| licence |")
    for line in table.splitlines():
        if "GPL" in line or "General Public" in line:
            assert all(f"`{name.strip()}`" in text for name in line.split("|")[2].split(","))
