"""Files of the site (`make site`): tracked pages at their places in the repository, and the API's page.

Links between pages, to the report and to code then work as they do on GitHub.
"""

from pathlib import Path
from subprocess import run

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import dprepro

PAGES = (":(glob)*.md", "docs", ":(glob)examples/*.py", ":(glob)examples/*/README.md")
REPORTS = tuple(
    f"{folder}reports/*.{suffix}"  # in all its folders
    for folder in ("", "examples/*/")
    for suffix in ("md", "svg", "csv", "json")
)
LINKED = ("LICENSE", "benchmarks/*.py", "papers/*.yaml", "tests/audits/test_jax_privacy.py")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Tracked pages, reports and linked files, in place of the ``files`` of `docs_dir`; the theme's own."""
    root = Path(config.config_file_path).parent
    command = ["git", "ls-files", "-z", *PAGES, *REPORTS, *LINKED]
    tracked = run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = filter(None, tracked.split("\0"))
    pages = [File.generated(config, path, abs_src_path=str(root / path)) for path in paths]
    functions_first = sorted(dprepro.__all__, key=lambda name: name[0].isupper())
    names = "\n\n".join(f"::: dprepro.{name}" for name in functions_first)
    api = File.generated(config, "api.md", content=f"# The library's functions and classes\n\n{names}\n")
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *pages, api])
