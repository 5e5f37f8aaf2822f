"""Run the tests of other libraries with their own functions and with those of gibbsot, and print a table.

    make peers                                      # all of them
    python tools/peers.py POT SciPy                 # some of them
    python tools/peers.py POT:emd POT:partial       # some tests of a library, by the first word of their row
    python tools/peers.py --checkout GUDHI=FOLDER   # test files of a library from a folder with its repository

The tests are those of the installed versions. They come from the source distributions that pip finds, from the
installed package (SciPy), or, where a library has no source distribution (GUDHI), from the repository that its metadata
name. They are unpacked in build/peers, and nothing of them belongs to this project. What cannot be fetched, such as
offline, is named and left out. The status is 1 if a test passes with the original and not with gibbsot.

pytest loads this file as a plugin too, in the processes that run the tests.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "peers"
VARIABLE = "GIBBSOT_PEER"  # which functions the plugin puts in place


def replace(module: str, **own: Any) -> None:
    """Put functions or classes in the place of those of a module, wherever they were imported."""
    originals = {id(getattr(importlib.import_module(module), name)): new for name, new in own.items()}
    for each in list(sys.modules.values()):
        if each is not None and not each.__name__.startswith("gibbsot"):
            for name, value in list(vars(each).items()):
                if id(value) in originals:
                    setattr(each, name, originals[id(value)])


def in_pot() -> None:
    """Let POT use the engine."""
    from gibbsot.compat import pot

    pot.install()


def names_of_pot() -> None:
    """Replace POT's public names by the functions of `gibbsot.compat`."""
    from gibbsot import compat

    replace("ot", emd=compat.emd, emd2=compat.emd2, solve=compat.solve, solve_sample=compat.solve_sample)
    replace("ot.unbalanced", mm_unbalanced=compat.mm_unbalanced, lbfgsb_unbalanced=compat.lbfgsb_unbalanced)


def in_scipy() -> None:
    """Replace the distances of `scipy.stats`."""
    from gibbsot.compat import scipy

    own = ("wasserstein_distance", "wasserstein_distance_nd", "energy_distance")
    replace("scipy.stats", **{name: getattr(scipy, name) for name in own})


def in_gudhi() -> None:
    """Replace GUDHI's distance of diagrams."""
    from gibbsot.compat import gudhi

    replace("gudhi.wasserstein", wasserstein_distance=gudhi.wasserstein_distance)


def in_torchcfm() -> None:
    """Replace torchcfm's sampler; POT, which its tests compare with, stays."""
    from gibbsot.compat.torchcfm import OTPlanSampler

    importlib.import_module("torchcfm.conditional_flow_matching")
    replace("torchcfm.optimal_transport", OTPlanSampler=OTPlanSampler)


PLACED: dict[str, Callable[[], None]] = {
    function.__name__: function for function in (in_pot, names_of_pot, in_scipy, in_gudhi, in_torchcfm)
}


class Suite(NamedTuple):
    """Tests of a library, and what is replaced for them."""

    library: str
    distribution: str
    about: str
    files: tuple[str, ...]
    placed: tuple[str, ...]
    version: str | None = None  # of the source distribution, if it is not the installed one
    tag: str | None = None  # in the repository, for libraries without source distributions
    options: tuple[str, ...] = ()

    def named(self, names: list[str]) -> bool:
        """Return whether some of the names is that of the library, or of these tests of it."""
        return any(name in (self.library, f"{self.library}:{self.about.split(',')[0]}") for name in names)


_POT = functools.partial(Suite, "POT", "POT", placed=("in_pot", "names_of_pot"))
SUITES = [
    _POT("emd, emd2, emd_1d", ("test/test_ot.py", "test/test_1d_solver.py")),
    # Gromov and barycenters, most of them regularised, take half an hour
    _POT("solve, solve_sample", ("test/test_solvers.py",), options=("-k", "not gromov and not bary")),
    _POT("partial", ("test/test_partial.py",)),
    # the last version whose source distribution has these tests
    _POT("unbalanced", ("test/test_unbalanced.py",), version="0.9.4"),
    Suite(
        "SciPy",
        "scipy",
        "wasserstein_distance, _nd, energy_distance",
        ("scipy.stats.tests.test_stats",),
        ("in_scipy",),
        options=("-k", "WassersteinDistance or EnergyDistance"),
    ),
    Suite(
        "GUDHI",
        "gudhi",
        "distances and barycenters of diagrams",
        tuple(f"src/python/test/test_wasserstein_{name}.py" for name in ("distance", "barycenter", "with_tensors")),
        ("in_gudhi", "in_pot"),
        tag="tags/gudhi-release-{}",
    ),
    Suite("pyemd", "pyemd", "emd, emd_with_flow, emd_samples", ("test/test_pyemd.py",), ("in_pot",)),
    Suite(
        "torchcfm",
        "torchcfm",
        "sampler and flow matchers",
        tuple(f"tests/test_{name}.py" for name in ("optimal_transport", "conditional_flow_matcher", "time_t")),
        ("in_torchcfm", "in_pot"),
    ),
]
_PLACES = {
    "in_pot": "compat.pot.install()",
    "names_of_pot": "functions of compat",
    "in_scipy": "compat.scipy",
    "in_gudhi": "compat.gudhi",
    "in_torchcfm": "compat.torchcfm",
}


# ---------------------------------------------------------------------------------------------------- the plugin


def pytest_configure() -> None:
    """Put our functions in place, before the tests are imported."""
    if VARIABLE not in os.environ:
        return
    pytest.skip_arg = skip_argument  # type: ignore[attr-defined]
    pytest.skip_backend = functools.partial(skip_argument, "nx", getter=str)  # type: ignore[attr-defined]
    for name in filter(None, os.environ[VARIABLE].split()):
        PLACED[name]()


def skip_argument(argument: Any, value: Any, reason: str = "", getter: Any = lambda x: x) -> Any:
    """Skip a test of POT for some arguments: its source distributions leave out the file that defines this."""
    names = argument if isinstance(argument, tuple | list) else (argument,)
    values = value if isinstance(argument, tuple | list) and isinstance(value, tuple | list) else (value,)
    getters = getter if isinstance(getter, tuple | list) else [getter] * len(names)

    def wrapper(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **given: Any) -> Any:
            if all(n in given and get(given[n]) == v for n, v, get in zip(names, values, getters, strict=True)):
                pytest.skip(reason)
            return function(*args, **given)

        return wrapped

    return wrapper


def pytest_generate_tests(metafunc: Any) -> None:
    """Give tests of POT their argument `nx`, each array library that POT knows."""
    if VARIABLE in os.environ and "nx" in metafunc.fixturenames:
        from ot.backend import get_backend_list

        if importlib.util.find_spec("jax"):
            importlib.import_module("jax").config.update("jax_enable_x64", True)
        metafunc.parametrize("nx", get_backend_list(), ids=str)


def pytest_runtest_setup() -> None:
    """Let both runs see the same random numbers."""
    import numpy as np

    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


# ---------------------------------------------------------------------------------------------------- test files


def fetch(suite: Suite, checkouts: dict[str, Path]) -> list[str] | str:
    """Return the test files as arguments of pytest, or why there are none."""
    try:
        installed = metadata.version(suite.distribution)
    except metadata.PackageNotFoundError:
        return "is not installed"
    if "/" not in suite.files[0]:
        return ["--pyargs", *suite.files] if importlib.util.find_spec(suite.files[0]) else "is installed without tests"
    folder = checkouts.get(suite.library)
    if folder is None:
        version = suite.version or installed
        folder = FOLDER / f"{suite.distribution}-{version}"
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            try:
                if suite.tag is None:
                    unpack(suite, version, partial)
                else:
                    clone(suite, version, partial)
            except Exception as error:  # offline, or no such file: whatever it is, these tests are left out
                shutil.rmtree(partial, ignore_errors=True)
                return f"{version}: its tests could not be fetched ({type(error).__name__}: {error})"
            partial.rename(folder)
    missing = [name for name in suite.files if not (folder / name).exists()]
    return f"{missing[0]} is not in {folder}" if missing else [str(folder / name) for name in suite.files]


def unpack(suite: Suite, version: str, folder: Path) -> None:
    """Unpack the tests of a source distribution, alone: its package is not compiled.

    `pip download` would build the metadata of the package, for which some need a compiler; pip's finder and session
    know the indices, proxies and certificates of this machine.
    """
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    options, _ = command.parse_args(["--no-binary", ":all:", "--no-deps", suite.distribution])
    with command.main_context():
        session = command.get_default_session(options)
        candidates = command._build_package_finder(options, session).find_all_candidates(suite.distribution)
        links = [each.link for each in candidates if str(each.version) == version]
        if not links:
            raise LookupError("no source distribution")
        answer = session.get(links[-1].url_without_fragment)
        answer.raise_for_status()
        folder.mkdir(parents=True)
        archive = folder / links[-1].filename
        archive.write_bytes(answer.content)
        if links[-1].hash:
            links[-1].as_hashes().check_against_path(archive)
    tests = Path(suite.files[0]).parts[0]
    with tarfile.open(archive) as file:
        for member in file.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name.startswith(f"{tests}/"):
                file.extract(member, folder, filter="data")
    archive.unlink()


def clone(suite: Suite, version: str, folder: Path) -> None:
    """Clone the tests of a tag from the repository that the metadata of a distribution name."""
    addresses = metadata.metadata(suite.distribution).get_all("Project-URL") or []
    address = next(each.partition(", ")[2] for each in addresses if each.lower().startswith("source"))
    assert suite.tag is not None
    quiet = ["git", "-c", "advice.detachedHead=false"]
    options = ["--quiet", "--depth", "1", "--filter", "blob:none", "--sparse", "--branch", suite.tag.format(version)]
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    for arguments in (
        ["clone", *options, address, str(folder)],
        ["-C", str(folder), "sparse-checkout", "set", str(Path(suite.files[0]).parent)],
    ):
        subprocess.run([*quiet, *arguments], check=True, env=environment, capture_output=True, timeout=120)


# ---------------------------------------------------------------------------------------------------- the table


def run(suite: Suite, files: list[str], placed: str) -> dict[str, str]:
    """Return the outcome of each test: "passed", "failed" or "skipped"."""
    name = f"{suite.library}, {suite.about}, {placed or 'original'}"
    report, log = FOLDER / f"{name}.xml", FOLDER / f"{name}.log"
    report.unlink(missing_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    folders = [str(Path(__file__).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    paths = os.pathsep.join(str(Path(each).resolve()) for each in folders)  # the tests run in another folder
    environment = os.environ | {VARIABLE: placed, "PYTHONPATH": paths, "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "pytest", "-p", "peers", "-p", "no:cacheprovider", "-q", "-c", os.devnull]
    command += ["--continue-on-collection-errors"]
    command += ["--rootdir", str(FOLDER), "--confcutdir", str(FOLDER), "--junitxml", str(report), *suite.options]
    with log.open("w", encoding="utf-8") as output:
        subprocess.run([*command, *files], cwd=FOLDER, env=environment, stdout=output, stderr=output, check=False)
    if not report.exists():
        raise SystemExit(f"{suite.library}: pytest wrote no report; see {log}")
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {part.tag for part in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return found


def main() -> None:
    """Run the tests of the libraries that the arguments name, and print the table."""
    from rich.console import Console
    from rich.table import Table

    libraries = list(dict.fromkeys(suite.library for suite in SUITES))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = f"libraries, of {', '.join(libraries)} (default: all), or such as POT:emd"
    parser.add_argument("names", nargs="*", metavar="NAME", help=text)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=FOLDER", help="a repository")
    args = parser.parse_args()
    if unknown := [name for name in args.names if not any(suite.named([name]) for suite in SUITES)]:
        parser.error(f"NAME: expected some of {', '.join(libraries)}; got {', '.join(unknown)}")
    checkouts = {name: Path(folder).resolve() for name, _, folder in (each.partition("=") for each in args.checkout)}
    for name, folder in checkouts.items():
        if name not in libraries or not folder.is_dir():
            parser.error(f"--checkout: expected NAME=FOLDER with one of {', '.join(libraries)}; got {name}={folder}")
    table = Table("library", "tests of", "in place", "passed", "failed", "skipped", "passed with the original", "lost")
    lost, left_out = [], []
    for suite in SUITES:
        if args.names and not suite.named(args.names):
            continue
        files = fetch(suite, checkouts)
        if isinstance(files, str):
            left_out.append(f"{suite.library}, {suite.about}: {files}")
            continue
        version = suite.version or metadata.version(suite.distribution)
        original = run(suite, files, "")
        for placed in suite.placed:
            ours = run(suite, files, placed)
            gone = [name for name, outcome in original.items() if outcome == "passed" != ours.get(name)]
            lost += [f"{suite.library} with {_PLACES[placed]}: {name}" for name in gone]
            counts = Counter(ours.values())
            numbers = [counts["passed"], counts["failed"], counts["skipped"]]
            numbers += [Counter(original.values())["passed"], len(gone)]
            table.add_row(f"{suite.library} {version}", suite.about, _PLACES[placed], *map(str, numbers))
    Console(width=170).print(table)
    for text in left_out:
        print(f"left out: {text}")
    for text in lost:
        print(f"lost: {text}")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
