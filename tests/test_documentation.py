"""All Python blocks of the README and of the pages of the site run, and the version is the same everywhere."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import zlib
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console
from rich.table import Table

import gibbsot
from gibbsot.core import native

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]


def load_tool(name, folder="tools"):
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_page = load_tool("run_page")
WITH_CODE = [page for page in PAGES if run_page.blocks(page)]


def test_pages_have_code():
    assert len(WITH_CODE) >= 9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if native.name() == "numpy":
        pytest.skip("hundreds of images are for the compiled kernels")
    monkeypatch.chdir(tmp_path)
    run_page.run(page)


def test_printed_outputs_of_a_page_are_compared(tmp_path):
    page = tmp_path / "page.md"
    text = "```python\nx = 2\nprint(x)\nx + 1\n```\n\n```text\n2\n{}\n```\n\n```python\nx = 3\n```\n"
    for right in ("3", "..."):
        page.write_text(text.format(right))
        run_page.run(page)
    page.write_text(text.format("4"))
    with pytest.raises(AssertionError, match=r"the page has\n2\n4\nand the block prints\n2\n3\n"):
        run_page.run(page)


def test_pages_show_what_they_print():
    assert sum(bool(expected) for page in WITH_CODE for _, expected in run_page.blocks(page)) >= 14


def api_objects():
    """Yield the names of the API pages, with their objects and the methods of classes."""
    module = ""
    for line in (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif found := re.fullmatch(r"   ([A-Za-z][\w.]*)", line):
            name = f"{module}.{found[1]}"
            try:
                obj = pkgutil.resolve_name(name)
            except ImportError:  # an extra that is not installed
                continue
            yield name, obj
            for member in vars(obj) if inspect.isclass(obj) else ():
                if not member.startswith("_"):
                    yield f"{name}.{member}", getattr(obj, member)


def names_without_import(source):
    """Return the names that code uses and neither binds nor imports."""
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | set(dir(builtins))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return {node.id for node in names} - bound


def test_the_examples_of_the_api_import_what_they_use():
    assert names_without_import("import a.b\nc = [x for x in a]\nd = c + e") == {"e"}
    found = {}
    examples = dict[str, int]()  # of each documented module; extras may be missing
    for name, obj in api_objects():
        source = "".join(example.source for example in doctest.DocTestParser().get_examples(inspect.getdoc(obj) or ""))
        module = inspect.getmodule(obj)
        examples[module.__name__ if module else ""] = examples.get(module.__name__ if module else "", 0) + bool(source)
        if missing := names_without_import(source):
            found[name] = missing
    assert not found
    assert examples["gibbsot.solvers.solve"] == 2  # it finds them


@pytest.mark.parametrize("module", ["gibbsot.jax", "gibbsot.scverse", "gibbsot.torch"])
def test_docstrings_of_the_extras(module):
    """Those of everything else are a matter of `make lint`."""
    pytest.importorskip("numpydoc")
    pytest.importorskip({"gibbsot.scverse": "anndata"}.get(module, module.removeprefix("gibbsot.")))
    tool = load_tool("check_docstrings")
    assert module in tool.EXTRAS
    checks = tool.check(module)
    assert checks
    assert not [line for lines in checks.values() for line in lines]


@pytest.mark.parametrize("file", ["CITATION.cff", "conda/recipe.yaml"])
def test_other_files_have_the_version(file):
    assert f"version: {gibbsot.__version__}\n" in (ROOT / file).read_text(encoding="utf-8")


def test_the_changelog_has_the_version():
    assert f"\n## {gibbsot.__version__}, " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_conda_recipe_has_the_requirements():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = re.search(r"^dependencies = \[(.*?)\]$", project, flags=re.MULTILINE)
    assert needed is not None
    for requirement in re.findall(r'"([^"]+)"', needed.group(1)):
        assert f"- {requirement.replace('>=', ' >=')}\n" in recipe


def test_readme_is_short_and_its_output_is_that_of_the_code():
    path = ROOT / "README.md"
    assert path.stat().st_size <= 6000
    results = doctest.testfile(str(path), module_relative=False)
    assert results.attempted >= 3
    assert results.failed == 0


# outside hosts that are meant: the paper, peers, tools and licences
OUTSIDE = {
    "anndata.readthedocs.io",
    "docs.dask.org",
    "distributed.dask.org",
    "jobqueue.dask.org",
    "keepachangelog.com",
    "kubernetes.dask.org",
    "ott-jax.readthedocs.io",
    "proceedings.mlr.press",
    "pyldavis.readthedocs.io",
    "pythonot.github.io",
    "semver.org",
    "www.contributor-covenant.org",
    "www.kernel-operations.io",
}
LINKED = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs" / "api").glob("*.md"))]


def links(text):
    """Return the targets of links and pictures, in Markdown and in cards, without those in code."""
    text = re.sub(r"```(?:python|console|text|pycon|bash)\n.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"<(https?://[^>]+)>", text)
    return found + re.findall(r"^:(?:link|img-top): (\S+)$", text, flags=re.MULTILINE)


def targets(page, link):
    """Return the files one of which a relative link needs; for a page that `make docs` writes, what it is made from."""
    path = (page.parent / link.partition("#")[0]).resolve()
    if path.parent == ROOT / "docs" / "gallery":
        return [
            ROOT / "examples" / "gallery" / f"{path.stem.replace('index', 'README')}{end}" for end in (".py", ".rst")
        ]
    if path.stem == "command_line":
        return [ROOT / "docs" / "_command_line.py"]
    return [path, path.with_name(f"{path.name}.md")]  # cards name documents without their suffix


@pytest.mark.parametrize("page", sorted(set(LINKED)), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_leads_somewhere(page):
    for link in links(page.read_text(encoding="utf-8")):
        if link.startswith("#"):
            continue
        if "://" in link:
            assert urlsplit(link).hostname in OUTSIDE, link
        else:
            assert any(one.exists() for one in targets(page, link)), link


def test_links_are_found_and_missing_files_noticed():
    text = "[a](b.md) `[no](no.md)` ![c](d.png#e)\n```python\nf[0](1)\n```\n<https://g>\n:link: guides/nmf\n"
    assert links(text) == ["b.md", "d.png#e", "https://g", "guides/nmf"]
    assert not any(one.exists() for one in targets(ROOT / "README.md", "docs/nothing.png"))
    assert any(one.exists() for one in targets(ROOT / "docs" / "index.md", "guides/nmf"))


def test_readme_has_relative_links_and_pictures():
    found = links((ROOT / "README.md").read_text(encoding="utf-8"))
    assert sum("://" not in link for link in found) > 10
    assert sum(link.endswith(".png") for link in found) == 4


long_description = load_tool("long_description")


def test_the_long_description_has_no_relative_links():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    plain = long_description.long_description(readme, {})
    assert all(link.startswith("https://") for link in links(plain))
    assert "![" not in plain
    assert "guides" in plain
    addresses = {"Source": "https://host/project", "Documentation": "https://site"}
    whole = long_description.long_description(readme, addresses)
    assert len(links(whole)) == len(links(readme))
    assert all(link.startswith("https://") for link in links(whole))
    assert "(https://site/quickstart.html)" in whole
    assert "(https://host/project/raw/main/docs/colours.png)" in whole
    metadata = long_description.dynamic_metadata("readme", {})
    assert metadata == {
        "content-type": "text/markdown",
        "text": long_description.long_description(readme, long_description.urls()),
    }
    with pytest.raises(ValueError, match="only the field readme"):
        long_description.dynamic_metadata("version", {})


def test_the_address_of_the_project_is_in_one_place():
    """Nothing names a repository or a site; once [project.urls] does, the conda recipe has the same."""
    for name in ("Source", "Documentation"):
        address = long_description.urls().get(name)
        recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
        assert address is None or f" {address}\n" in recipe
    files = [
        *ROOT.glob("*.*"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "docs" / "conf.py",
        ROOT / "conda" / "recipe.yaml",
    ]
    files += [file for folder in ("src", "paper", "tools", "examples") for file in (ROOT / folder).rglob("*.py")]
    for file in files:
        if file.is_file() and file.name != "pyproject.toml" and "_build" not in file.parts:
            text = file.read_text(encoding="utf-8", errors="ignore")
            assert not re.search(r"github\.com/gibbsot|gibbsot\.github\.io|gibbsot\.readthedocs", text), file


measurements = load_tool("measurements")


def test_every_measurement_has_its_file_and_is_on_its_pages():
    files = {path.stem for path in measurements.FOLDER.glob("*.md")} - {"index", "by_release"}
    assert files == set(measurements.MEASUREMENTS)
    index = (measurements.FOLDER / "index.md").read_text(encoding="utf-8")
    for name, (command, pages, _) in measurements.MEASUREMENTS.items():
        assert (ROOT / command.split()[0]).exists()
        assert f"`python {command}`" in index
        head = (measurements.FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0]
        assert head.startswith(f"*`python {command}`, ")
        for page in set(pages) - {"README"}:
            assert f"_measurements/{name}.md" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_the_ratios_of_every_version_are_kept():
    history = json.loads((measurements.FOLDER / "history.json").read_text(encoding="utf-8"))
    assert gibbsot.__version__ in history
    written = (measurements.FOLDER / "by_release.md").read_text(encoding="utf-8")
    assert written == measurements.release_table(history)
    older = {name: {"rows": 1, "worst": 1.0, "median": 12.34} for name in list(measurements.RATIOS)[:1]}
    header, _, first, second, *_ = measurements.release_table({"0.0.9": older, "0.0.10": older}).splitlines()
    assert header.split(" | ")[-2:] == ["0.0.10", "0.0.9 |"]
    assert first.endswith("| 12× (1.0×) | 12× (1.0×) |")
    assert second.endswith("|  |  |")
    found = measurements.ratios_of("solve")
    assert found["rows"] > 20
    assert 0 < found["worst"] <= found["median"]


def test_printed_tables_become_markdown():
    table = Table("what", "ratio", "target", "", title="times")  # the last two are for developers
    table.add_row("dense", "1.5", "1", "yes")
    table.add_row("grids", "2", "", "")
    console = Console(width=60, file=StringIO())
    for each in ("two kinds", table, "worst: 1.5x"):
        console.print(each)
    found = measurements.to_markdown(console.file.getvalue())
    assert found.split("\n\n") == [
        "```text\ntwo kinds\n```",
        "**times**",
        "| what | ratio |\n|---|---|\n| dense | 1.5× |\n| grids | 2× |",
        "```text\nworst: 1.5×\n```\n",
    ]
    assert measurements.table_of(found, "ratio")[1] == {"what": "grids", "ratio": "2×"}


def test_a_table_has_one_unit_of_time_and_signs_at_its_ratios():
    table = Table("what", "times", "ratio", "value / scale")
    table.add_row("a name of several words", "0.00012 s", "1.46e+04", "6e-16")
    table.add_row("28 x 28", "14.3 s (2.1x)", "", "0")
    table.add_row("64 x 64", "3.45 s", "0.91", "0")
    console = Console(width=70, file=StringIO())
    console.print(table)
    rows = measurements.table_of(measurements.to_markdown(console.file.getvalue()), "ratio")
    space = "\N{NO-BREAK SPACE}"
    assert [row["times"] for row in rows] == [f"0.120{space}ms", "14.3 s (2.1×)", f"3,450{space}ms"]
    assert [row["ratio"] for row in rows] == ["14,600×", "", "0.91×"]
    assert [row["value / scale"] for row in rows] == ["6e-16", "0", "0"]
    printed = f"{'what':20}{'ours':>11}{'emd2':>11}{'ratio':>8}  remarks\n"
    printed += f"{'dense 10 x 10':20}{4.87e-05:9.3g} s{0.0001:9.3g} s{2.06:8.3g}  random costs\n"
    printed += f"{'grid 64^2, power 1':20}{0.836:9.3g} s{'':19}  \nfaces are left out: no network\n"
    assert measurements.to_markdown(printed).replace("\N{NO-BREAK SPACE}", " ") == (
        "| what | ours | emd2 | ratio | remarks |\n| --- | --- | --- | --- | --- |\n"
        "| dense 10 x 10 | 0.0487 ms | 0.100 ms | 2.06× | random costs |\n| grid 64^2, power 1 | 836 ms |  |  |  |\n\n"
        "faces are left out\n"
    )


def test_figures_of_readme_and_of_the_front_page_are_those_of_the_measurements(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    before, known, names = {}, {"solve", *measurements.figures(), "photographs"}, []
    for page in ("README.md", "docs/index.md"):
        before[page] = (ROOT / page).read_text(encoding="utf-8")
        names += (found := re.findall(r"<!-- (\w+) -->", before[page]))[::2]
        assert found[1::2] == ["end"] * (len(found) // 2)
        assert set(re.findall(r"^ *<!-- (\w+)", before[page], flags=re.MULTILINE)) <= {"solve", "end"}  # or no Markdown
        emptied = before[page]
        for name in ("solve", "growth"):
            emptied = re.sub(rf"(<!-- {name} -->\s*).*?(\s*<!-- end -->)", r"\1gone\2", emptied, flags=re.DOTALL)
        (tmp_path / page).write_text(emptied, encoding="utf-8")
    assert set(names) <= known
    assert {"solve", "growth", "million", "largest"} <= set(names)
    measurements.write_sentences()
    for page, text in before.items():
        assert (tmp_path / page).read_text(encoding="utf-8") == text


def test_tables_that_are_older_than_their_code_are_named(monkeypatch, tmp_path):
    def commit(file, text):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
        for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "a change"]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)

    monkeypatch.setattr(measurements, "ROOT", tmp_path)
    monkeypatch.setattr(measurements, "FOLDER", tmp_path / "tables")
    one, other = (measurements.Measurement(f"{name}.py", (), (f"src/{name}",)) for name in ("one", "other"))
    monkeypatch.setattr(measurements, "MEASUREMENTS", {"one": one, "other": other})
    assert measurements.stale() == {}  # without history
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("src/one/a.py", "one.py", "src/other/a.py", "tables/one.md", "tables/other.md"):
        commit(name, "1")
    assert measurements.stale() == {}
    commit("src/one/a.py", "2")
    commit("one.py", "2")
    assert measurements.stale() == {"one": 2}
    commit("tables/one.md", "2")
    assert measurements.stale() == {}


@pytest.mark.parametrize("name", measurements.MEASUREMENTS)
def test_the_code_of_measurements_exists(name):
    assert all((ROOT / path).exists() for path in measurements.MEASUREMENTS[name].code)


def test_minimum_versions_are_those_of_the_project():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = load_tool("minimum_versions").minimum_versions(text)
    assert {line.partition("==")[0] for line in found} >= {"numpy", "scipy", "scikit-learn", "threadpoolctl", "dask"}
    for line in found:
        name, version = line.split("==")
        assert re.search(rf'"{name}(\[[a-z]+\])?>={re.escape(version)}["; ]', text), line


def test_inventories_of_the_site_have_the_names_of_the_tool(tmp_path, monkeypatch):
    tool = load_tool("inventories")
    monkeypatch.setattr(tool, "ADDRESSES", {name: f"{tmp_path.as_uri()}/" for name in tool.ADDRESSES})
    (tmp_path / "objects.inv").write_bytes(tool.inventory("torch", tool.WRITTEN["torch"]))
    for name in tool.ADDRESSES:
        *header, body = (tool.FOLDER / f"{name}.inv").read_bytes().split(b"\n", 4)
        assert header[0] == b"# Sphinx inventory version 2"
        stored = {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}
        written = {each for kinds in tool.WRITTEN.get(name, {}).values() for names in kinds.values() for each in names}
        assert written <= stored
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    assert tool.main(["fetch", "numpy"]) == 0
    assert (tmp_path / "numpy.inv").read_bytes() == (tmp_path / "objects.inv").read_bytes()
    assert tool.main(["write"]) == 0
    assert (tmp_path / "torch.inv").read_bytes() == (tmp_path / "objects.inv").read_bytes()
    assert tool.main(["fetch", "unknown"]) == 2


def test_the_page_of_the_command_line_can_be_copied():
    text = load_tool("_command_line", "docs").page()
    commands = [line for line in text.splitlines() if line.startswith("$ ")]
    assert len(commands) > 10
    assert all(line.startswith(("$ gibbsot ", "$ pip ")) for line in commands)
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL).replace("|---|---|", "")
    assert "--" not in prose  # outside of code it would be shown as a dash
    assert "for a metric in `--cost`." in text
