"""The repository's texts as the pages of a site: guides, cards, notebooks, and every file that they link to.

Pages lie where their files lie in the repository, so links between them stay as they are. A notebook becomes a page of
its own; a file of code becomes a page that shows it, and a folder one that lists it; links to these get other endings.
"""

import base64
import json
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
STARTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", flags=re.MULTILINE | re.DOTALL)
PICTURES = (".svg", ".png", ".jpg")
SHOWN = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".jinja": "jinja", ".cff": "yaml"}


class Tree:
    """Pages that are written to a folder, from the repository's files.

    Args:
        folder: where pages are written.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.pages: dict[str, str] = {}
        """File or folder of the repository -> page, for all that were asked for."""
        self._waiting: list[str] = []

    def ask(self, path: str) -> str:
        """The page of a file or folder of the repository, which `write` will write.

        Raises:
            FileNotFoundError: if there is no such file.
        """
        if path not in self.pages:
            place = REPOSITORY / path
            if not place.exists():
                raise FileNotFoundError(f"{path} is linked, and not there")
            if place.is_dir():
                page = posixpath.join(path, "index.md")
            elif place.suffix == ".ipynb":
                page = str(Path(path).with_suffix(".md"))
            else:
                page = path if place.suffix in (".md", *PICTURES) else f"{path}.md"
            self.pages[path] = page
            self._waiting.append(path)
        return self.pages[path]

    def write(self) -> None:
        """Writes all pages that were asked for, and those that they link to."""
        while self._waiting:
            path = self._waiting.pop()
            source, page = REPOSITORY / path, self.folder / self.pages[path]
            page.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                page.write_text(self._list(path), "utf-8")
            elif source.suffix == ".md":
                page.write_text(self.follow(source.read_text("utf-8"), path), "utf-8")
            elif source.suffix == ".ipynb":
                page.write_text(self.follow(self._show_notebook(source, page), path), "utf-8")
            elif source.suffix in PICTURES:
                shutil.copyfile(source, page)
            else:
                page.write_text(show_code(path, source.read_text("utf-8")), "utf-8")

    def follow(self, text: str, path: str) -> str:
        """A page's text with its links leading to pages, which are asked for; what stands in code stays."""
        here = posixpath.dirname(path)

        def lead(match: re.Match[str]) -> str:
            target, hash_mark, anchor = match[2].partition("#")
            if "://" in target or target.startswith("mailto:") or not target:
                return match[0]
            found = posixpath.normpath(posixpath.join(here, target))
            if (self.folder / found).is_file() and not (REPOSITORY / found).exists():
                return match[0]  # drawn for the site
            page = posixpath.relpath(self.ask(found), here or ".")
            return f"{match[1]}{page}{hash_mark}{anchor}{match[3]}"

        parts, end = [], 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(lead, text[end : fence.start()]), fence[0]]
            end = fence.end()
        return "".join([*parts, LINK.sub(lead, text[end:])])

    def _list(self, path: str) -> str:
        files = sorted(
            each for each in (REPOSITORY / path).iterdir()
            if each.suffix in (".md", ".py", ".yaml", ".ipynb") and each.name != "__init__.py"
        )  # fmt: skip
        lines = [
            f"- [{each.name}]({posixpath.relpath(self.ask(f'{path}/{each.name}'), path)}): {_first_line(each)}"
            for each in files
        ]
        return "\n".join([f"# {path}", "", *lines, ""])

    def _show_notebook(self, source: Path, page: Path) -> str:
        """Cells as text and code, and what they have put out; pictures become files beside the page."""
        notebook: dict[str, Any] = json.loads(source.read_text("utf-8"))
        about = f"The notebook `docs/tutorials/{source.name}`, with the outputs of the run that is stored in it."
        parts = [f'!!! note ""\n    {about}\n']
        for number, cell in enumerate(notebook["cells"]):
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(set_formulas(text) + "\n")
                continue
            parts.append(f"```python\n{text}\n```\n")
            for output in cell["outputs"]:
                data = output.get("data", {})
                if "image/png" in data:
                    picture = page.with_name(f"{page.stem}-{number}.png")
                    picture.write_bytes(base64.b64decode(data["image/png"]))
                    parts.append(f"![What cell {number} draws]({picture.name})\n")
                elif said := "".join(output.get("text", data.get("text/plain", []))).rstrip():
                    parts.append(f"```text\n{said}\n```\n")
        title, rest = parts[1].split("\n", 1)
        return "\n".join([title, "", parts[0], rest, *parts[2:]])


def set_formulas(text: str) -> str:
    """Formulas in dollars as MathML, which browsers show without any script."""
    from latex2mathml.converter import convert  # as below: the tests go without it

    text = re.sub(r"\$\$(.+?)\$\$", lambda match: formula(match[1]), text, flags=re.DOTALL)
    return re.sub(r"(?<![\\$`\w])\$([^$`\n]+?)\$(?!\w)", lambda match: str(convert(match[1])), text)


def formula(latex: str) -> str:
    """A formula as a paragraph of its own."""
    from latex2mathml.converter import convert

    return f'<div class="formula">{convert(" ".join(latex.split()), display="block")}</div>'


def show_code(path: str, text: str) -> str:
    """A page that shows a file."""
    language = SHOWN.get(Path(path).suffix, "text")
    mark = "````" if "```" in text else "```"
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{mark}{language}\n{text.rstrip()}\n{mark}\n"


def _first_line(path: Path) -> str:
    """What a file says of itself."""
    for line in path.read_text("utf-8").splitlines():
        if words := line.strip("\"#'-. ").removeprefix("name:"):
            return words if path.suffix in (".py", ".md", ".yaml") else ""
    return ""
