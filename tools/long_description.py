"""The long description of the package: README.md with absolute links; a provider of scikit-build-core.

Links of README.md are relative, so that they work in a clone and on any host. The addresses of the repository and the
site are ``Source`` and ``Documentation`` of ``[project.urls]`` in pyproject.toml, and nowhere else. While they are not
set, relative links become plain text and pictures, each on a line of its own, are left out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https://)([^)#]+)(#[^)]*)?\)")


def urls() -> dict[str, str]:
    """Return ``[project.urls]`` of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: address.rstrip("/") for name, address in project.get("urls", {}).items()}


def long_description(readme: str, urls: Mapping[str, str]) -> str:
    r"""Return a text whose relative links are absolute, or plain text where there is no address.

    Parameters
    ----------
    readme : str
        The text of README.md.
    urls : mapping
        The addresses by name.

    Returns
    -------
    str

    Examples
    --------
    >>> text = "![Strokes](docs/a.png)\\nSee [guides](docs/user_guide.md) and [POT](https://pythonot.github.io)."
    >>> long_description(text, {})
    'See guides and [POT](https://pythonot.github.io).\\n'
    >>> print(long_description(text, {"Source": "https://host/a", "Documentation": "https://site"}), end="")
    ![Strokes](https://host/a/raw/main/docs/a.png)
    See [guides](https://site/user_guide.html) and [POT](https://pythonot.github.io).
    """
    source, site = urls.get("Source"), urls.get("Documentation")
    readme = re.sub(r"\[([^\]]*)\]\(", lambda match: " ".join(match[0].split()), readme)  # no link over two lines

    def absolute(match: re.Match[str]) -> str:
        picture, text, path, anchor = match[1], match[2], match[3], match[4] or ""
        if picture:
            return f"![{text}]({source}/raw/main/{path})"
        if site and (page := re.fullmatch(r"docs/(.+)\.md", path)):
            return f"[{text}]({site}/{page[1]}.html{anchor})"
        return f"[{text}]({source}/blob/main/{path}{anchor})" if source else text

    lines = (_LINK.sub(absolute, line) for line in readme.splitlines() if source or not line.startswith("!["))
    return "\n".join(lines) + "\n"


def dynamic_metadata(field: str, settings: Mapping[str, Any], _project: Any = None) -> dict[str, str]:
    """Return the field ``readme`` of the metadata, as scikit-build-core asks for it."""
    if field != "readme" or settings:
        raise ValueError(f"only the field readme without settings is provided, not {field} with {dict(settings)}")
    text = long_description((ROOT / "README.md").read_text(encoding="utf-8"), urls())
    return {"content-type": "text/markdown", "text": text}
