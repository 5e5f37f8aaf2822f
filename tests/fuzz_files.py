"""Mutated files and bombs for every reader: each is read, or is an error that names it, in little memory.

    python tests/fuzz_files.py 10000 0 [seconds]

A child process reads the files; a crash or a hang is reported with its seed, and the next child takes the next seed.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import random
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from gibbsot import GridCost, Oracle, WassersteinBarycenter, WassersteinNMF
from gibbsot.distributed.checkpoints import MARK
from gibbsot.io import readers

ERRORS = (ValueError, OSError, ImportError)  # what a reader may raise
HANG = 60.0  # seconds for one file
LARGEST = 200e6  # bytes of memory beside ten times the file
LARGEST_BOMB = 100e6  # bytes of memory for a file of at most two megabytes that promises 400
STEPS = ("flip", "set", "cut", "insert", "repeat", "number", "swap")


# Valid files


def matrix() -> np.ndarray:
    X = np.random.default_rng(0).random((6, 12)).round(3)
    X[X < 0.3] = 0
    return X


def saved(write: Callable[[Any], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def picture(suffix: str, mode: str = "L") -> bytes:
    from PIL import Image

    values = np.random.default_rng(0).integers(0, 256, (9, 8, 4), np.uint8)
    image = Image.fromarray(values, "RGBA").convert(mode)
    return saved(lambda file: image.save(file, suffix))


def deep_picture(compression: str) -> bytes:
    from PIL import Image

    image = Image.fromarray((matrix() * 60000).astype(np.uint16))
    return saved(lambda file: image.save(file, "TIFF", compression=compression))


def parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({f"column {k}": x for k, x in enumerate(matrix().T[:4])})
    return saved(lambda file: parquet.write_table(table, file))


def idx() -> bytes:
    values = (matrix() * 255).astype(np.uint8).reshape(6, 4, 3)
    return b"\0\0\x08\3" + struct.pack(">3I", *values.shape) + values.tobytes()


def model(folder: Path) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WassersteinNMF(2, cost="line", max_epochs=2, tau=1, random_state=0).fit(matrix()).save(folder / "model.npz")
    return (folder / "model.npz").read_bytes()


SHARDS: dict[str, dict[str, bytes]] = {}  # files of a checkpoint beside model.npz, by the name of the mutated file


def checkpoint(kind: Any, name: str, folder: Path, **options: Any) -> bytes:
    """Return model.npz of a checkpoint; keep the other files for `use`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(cost="line", max_epochs=2, random_state=0, checkpoint=folder / name, **options).fit(matrix())
    last = max((folder / name).glob("epoch-*"))
    SHARDS[name] = {path.name: path.read_bytes() for path in last.iterdir() if path.name != "model.npz"}
    return (last / "model.npz").read_bytes()


def oracle(folder: Path) -> bytes:
    one = Oracle(GridCost(12), matrix(), method="gibbs", normalize=True, max_sweeps=2)
    one(np.full(12, 1 / 12))
    one.save(folder / "oracle.npz")
    return (folder / "oracle.npz").read_bytes()


def csv(mark: str) -> bytes:
    rows = [mark.join(["x", "y", "weight"]), *(mark.join(map(str, row)) for row in matrix()[:, :3])]
    return "\n".join(rows).encode()


def originals() -> dict[str, bytes]:
    """Return a valid file of each kind, by its name."""
    X = matrix()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {"oracle.npz": oracle(folder), "model.npz": model(folder)}
        found["nmf-checkpoint.npz"] = checkpoint(WassersteinNMF, "nmf-checkpoint.npz", folder, n_components=2, tau=1)
        found["mean-checkpoint.npz"] = checkpoint(
            WassersteinBarycenter, "mean-checkpoint.npz", folder, tau=1, max_memory=1.0
        )
    found |= {
        "array.npy": saved(lambda file: np.save(file, X)),
        "arrays.npz": saved(lambda file: np.savez_compressed(file, images=X.reshape(6, 4, 3), labels=np.arange(6))),
        "sparse.npz": saved(lambda file: sparse.save_npz(file, sparse.csr_array(X))),
        "coo.npz": saved(lambda file: sparse.save_npz(file, sparse.coo_array(X))),
        "comma.csv": csv(","),
        "semicolon.csv": csv(";").replace(b".", b","),
        "images-idx3-ubyte": idx(),
        "images-idx3-ubyte.gz": gzip.compress(idx()),
    }
    with contextlib.suppress(ImportError):
        found["table.parquet"] = parquet()
    with contextlib.suppress(ImportError):
        found |= {f"{mode}.png": picture("PNG", mode) for mode in ("L", "RGBA", "P", "1")}
        found |= {
            "lzw.tiff": deep_picture("tiff_lzw"),
            "raw.tif": deep_picture("raw"),
            "rgb.tif": picture("TIFF", "RGB"),
        }
        found |= {"a.jpg": picture("JPEG", "RGB"), "a.gif": picture("GIF"), "a.bmp": picture("BMP", "RGB")}
        found |= {"a.pgm": picture("PPM"), "a.webp": picture("WEBP", "RGB")}
    return found


# Bombs: small files that promise, and partly keep, some hundred megabytes

PROMISED = 400_000_000  # bytes


def _zeros_npy(size: int, dtype: str = "f8") -> Iterator[bytes]:
    """Yield a .npy file of zeros block by block."""
    itemsize = np.dtype(dtype).itemsize
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (size // itemsize // 100, 100)}
    )
    yield header.getvalue()
    for _ in range(size // 10**6):
        yield bytes(10**6)


def _packed(content: bytes, name: str, blocks: Iterator[bytes]) -> bytes:
    """Return an archive with one more entry, which is compressed."""
    buffer = io.BytesIO(content)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as entry:
        for block in blocks:
            entry.write(block)
    return buffer.getvalue()


def _overlapping(content: bytes) -> bytes:
    """Return a model file whose entries are all the largest one: each is read in full."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in entries.items():
            if not name.startswith("parameter"):
                archive.writestr(name, value)
        archive.writestr("cost_big.npy", b"".join(_zeros_npy(4_000_000)))
        for k in range(100):
            again = copy.copy(archive.getinfo("cost_big.npy"))
            again.filename = f"cost_a{k:02}.npy"
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    return buffer.getvalue()


def parquet_bomb() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"x": np.zeros(10**6), "y": np.ones(10**6)})

    def write(file: Any) -> None:
        with parquet.ParquetWriter(file, table.schema) as writer:
            for _ in range(PROMISED // 16 // 10**6):
                writer.write_table(table)

    return saved(write)


def bombs() -> dict[str, bytes]:
    """Return small files that would take much memory, by their names."""
    files = originals()
    sides = struct.pack(">3I", PROMISED // 8 // 10**4, 100, 100)
    rows = sparse.coo_array(([1.0], ([0], [0])), shape=(PROMISED // 8, 10))
    other = files["sparse.npz"].replace(b"data.npy", b"dat4.npy")
    found = {
        "zeros.npz": _packed(b"", "images.npy", _zeros_npy(PROMISED)),
        "bytes.npz": _packed(b"", "images.npy", _zeros_npy(PROMISED // 8, "u1")),
        "unknown.npz": _packed(saved(lambda file: np.savez(file, images=matrix())), "zeros.npy", _zeros_npy(PROMISED)),
        "model-unknown.npz": _packed(files["model.npz"], "zeros.npy", _zeros_npy(PROMISED)),
        "model-known.npz": _packed(files["model.npz"], "cost_zeros.npy", _zeros_npy(PROMISED)),
        "model-overlapping.npz": _overlapping(files["model.npz"]),
        "oracle-unknown.npz": _packed(files["oracle.npz"], "zeros.npy", _zeros_npy(PROMISED)),
        "sparse-data.npz": _packed(other, "data.npy", _zeros_npy(PROMISED)),
        "rows.npz": saved(lambda file: sparse.save_npz(file, rows)),
        "idx3-ubyte.gz": gzip.compress(b"\0\0\x08\3" + sides + bytes(PROMISED // 8)),
    }  # fmt: skip
    with contextlib.suppress(ImportError):
        found["zeros.parquet"] = parquet_bomb()
    return found


def explode() -> int:
    """Read each bomb in a process of its own; print the memory it took, and return how many took too much."""
    wrong = 0
    print(f"{'bomb':24} {'bytes':>10} {'memory':>10}")
    for name, content in bombs().items():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, name).write_bytes(content)
            words = [sys.executable, __file__, "--bomb", str(Path(folder, name))]
            told = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG).stdout
        memory, _, state = told.partition(" ")
        bad = not memory or state.startswith("wrong") or float(memory) > LARGEST_BOMB
        wrong += bad
        print(f"{name:24} {len(content):10} {float(memory or 'nan') / 1e6:7.0f} MB  {state.strip() if bad else ''}")
    return wrong


# Mutations


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return a file with a few changes, some of them inside what is compressed or has a checksum."""
    wrapped = [_crafted, _inside_zip, _inside_gzip, _inside_png]
    for wrap in wrapped:
        if rng.random() < 0.5 and (found := wrap(content, rng)) is not None:
            return found
    return _changed(content, rng)


def _changed(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 64))
        step = rng.choice(STEPS)
        if step == "flip" and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif step == "set":
            data[at : at + size] = bytes([rng.choice((0, 1, 127, 128, 255))]) * len(data[at : at + size])
        elif step == "cut":
            del data[at : rng.choice((at + size, len(data)))]
        elif step == "insert":
            data[at:at] = rng.randbytes(size)
        elif step == "repeat":
            data[at:at] = data[at : at + size] * rng.choice((1, 2, 100))
        elif step == "number":
            number = rng.choice((-1, 0, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, rng.getrandbits(64)))
            form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
            packed = struct.pack(form, number % 2 ** (8 * struct.calcsize(form)))
            data[at : at + len(packed)] = packed
        elif step == "swap":
            other = rng.randrange(len(data) + 1)
            data[at : at + size] = data[other : other + size]
    if rng.random() < 0.2:  # digits of headers and tables
        text = bytes(data)
        digit = str(rng.randrange(10)).encode()
        return text.replace(digit, rng.choice((b"9999999999", b"-1", b"0", b"1e308", b"nan")), 1)
    return bytes(data)


def _crafted(content: bytes, rng: random.Random) -> bytes | None:
    """Change arrays of an archive, each of which is valid: what someone would do who knows the format."""
    if content[:2] != b"PK":
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name in rng.choices(sorted(arrays.keys() - {"format"}), k=rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(ValueError, OverflowError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy about casts
            arrays[name] = _crafted_array(arrays[name], rng, list(arrays.values()))
    if rng.random() < 0.1:
        del arrays[rng.choice(sorted(arrays))]
    return saved(lambda file: np.savez(file, **arrays))


def _crafted_array(x: np.ndarray, rng: random.Random, others: list[np.ndarray]) -> np.ndarray:
    """Return an array like another one, of another shape, type or value."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(others)
    if kind == 1:
        return x.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1))))
    if kind == 2:
        return x.ravel()[: rng.choice((0, 1, max(0, x.size - 1)))]
    if kind == 3:
        return np.array(
            rng.choice(("", "x", "nan", "line", "paper", 1j, True, b"x", np.float16(1), np.datetime64(1, "s")))
        )
    if kind == 4 and x.dtype.kind in "fiub":
        return x.astype(rng.choice(("f2", "f4", "f8", "i1", "i8", "u8", "?", "c16", "U5", "S3", ">f8")))
    if kind == 5:
        return np.concatenate([x.ravel()] * rng.choice((2, 10)))
    found = np.array(x)
    if found.dtype.kind in "fiu" and found.size:
        values = (0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63), 1e308, -1e308, 1e-320, np.nan, np.inf, -np.inf)
        if found.dtype.kind in "iu":
            info = np.iinfo(found.dtype)
            values = (0, 1, 7, 10**6, int(info.max), int(info.min), int(info.max) // 2)
        with np.errstate(all="ignore"):
            found.flat[rng.randrange(found.size) if kind == 6 else slice(None)] = rng.choice(values)
    return found


def _inside_zip(content: bytes, rng: random.Random) -> bytes | None:
    """Change an entry of an archive, whose checksums are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return None
    name = rng.choice(list(entries))
    kind = rng.randrange(4)
    if kind == 0:
        del entries[name]
    elif kind == 1:
        entries[name] = entries[rng.choice(list(entries))]
    else:
        entries[name] = _changed(entries[name], rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for key, value in entries.items():
            archive.writestr(key, value)
    return buffer.getvalue()


def _inside_gzip(content: bytes, rng: random.Random) -> bytes | None:
    return gzip.compress(_changed(gzip.decompress(content), rng)) if content[:2] == b"\x1f\x8b" else None


def _inside_png(content: bytes, rng: random.Random) -> bytes | None:
    """Change a chunk of a PNG, whose checksum is right."""
    if content[:4] != b"\x89PNG":
        return None
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    k = rng.randrange(len(chunks))
    name, data = chunks[k]
    data = zlib.compress(_changed(zlib.decompress(data), rng)) if name == b"IDAT" else _changed(data or b"\0", rng)
    chunks[k] = name, data
    parts = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    return content[:8] + b"".join(parts)


# Reading


def use(path: Path) -> None:
    """Read a file in all the ways that its name allows, and compute a little with what is read."""
    if path.name.startswith("model"):
        found = WassersteinNMF.load(path)
        if found.components_.size < 1e4 and (found.tau or 0) < 100:
            found.transform(np.ones((1, found.n_features_in_)))
            with contextlib.suppress(ValueError):  # the file is not of a fit of these data
                found.set_params(max_epochs=3, n_jobs=1).resume(matrix())
        return
    if path.name in SHARDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "epoch-00000002")
            folder.mkdir()
            for part, content in SHARDS[path.name].items():
                (folder / part).write_bytes(content)
            Path(name, MARK).write_bytes(SHARDS[path.name][MARK])
            (folder / "model.npz").write_bytes(path.read_bytes())
            loaded = (WassersteinNMF if path.name.startswith("nmf") else WassersteinBarycenter).load(name)
            if loaded.cost_.shape[0] < 1e3 and (loaded.tau or 0) < 100:
                loaded.set_params(max_epochs=3, n_jobs=1, max_seconds=1.0).resume(matrix())
        return
    if path.name.startswith("oracle"):
        loaded = Oracle.load(path)
        if loaded.cost.shape[0] < 1e3 and loaded._options.get("max_sweeps", 0) < 1e3 and 0 < len(loaded) < 1e3:
            loaded(np.full(loaded.cost.shape[0], 1 / loaded.cost.shape[0]))
        return
    if readers.is_image(path):
        readers.image(path)
        readers.image(path, size=(2, 2))
        return
    for read in (
        lambda: readers.measure(path, points=True, weighted=True),
        lambda: readers.measure(path),
        lambda: readers.collection(path),
        lambda: readers.matrix(path),
    ):
        with contextlib.suppress(ValueError):  # of this way to read it
            read()
    rows = readers.matrix(path)
    if 0 < rows.shape[1] < 1e3 and rows.shape[0] < 1e3:
        Oracle(GridCost(rows.shape[1]), rows, normalize=True)(np.full(rows.shape[1], 1 / rows.shape[1]))


def _peak() -> int | None:
    """Return the largest memory so far in bytes, on Linux."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    return None


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def judge(name: str, content: bytes, folder: Path) -> tuple[str, float]:
    """Return "read", "error" or "wrong: ...", and the memory it took in bytes."""
    path = folder / name
    path.write_bytes(content)
    _reset_peak()
    before = _peak() or 0
    state = "read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(path)
    except ERRORS as error:
        state = "error"
        if isinstance(error, ValueError) and not str(error):
            state = "wrong: an error without words"
    except Exception as error:  # reported with its seed
        state = f"wrong: {type(error).__name__}: {error}"
    finally:
        path.unlink()
    memory = float((_peak() or 0) - before)
    if memory > 10 * len(content) + LARGEST:
        state = f"wrong: {memory / 1e6:.0f} MB for a file of {len(content)} bytes"
    return state, memory


def case(seed: int, files: dict[str, bytes]) -> tuple[str, bytes]:
    """Return the name and the content of the file of a seed."""
    rng = random.Random(seed)
    name = sorted(files)[seed % len(files)]
    return name, mutate(files[name], rng)


def child(first: int, n: int) -> None:
    """Read the files of some seeds; print a line before and after each."""
    files = originals()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + n):
            name, content = case(seed, files)
            print("begin", seed, name, flush=True)
            state, memory = judge(name, content, Path(folder))
            print("end", int(memory), state, flush=True)


def results(first: int, n: int, seconds: float) -> Iterator[tuple[int, str, str, float]]:
    """Yield seed, name, state and memory of each file, until the time is over."""
    seed, deadline = first, time.monotonic() + seconds
    while seed < first + n and time.monotonic() < deadline:
        words = [sys.executable, __file__, "--child", str(seed), str(first + n - seed)]
        # libraries of images print what is wrong with each file
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            name, begun = "", False
            for line in _lines(process):
                kind, _, rest = line.partition(" ")
                if kind == "begin":
                    name, begun = rest.split(" ")[1], True
                elif kind == "end":
                    memory, _, state = rest.partition(" ")
                    yield seed, name, state, float(memory)
                    seed, begun = seed + 1, False
                    if time.monotonic() > deadline:
                        process.kill()
                        return
            process.kill()
            process.wait()
            if begun:
                yield seed, name, f"wrong: crash or hang, exit code {process.returncode}", 0.0
                seed += 1
            elif process.returncode:
                raise RuntimeError(f"the child ended with {process.returncode} before the file of seed {seed}")


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield lines of a process until it ends or says nothing for too long."""
    import queue
    import threading

    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    stream = process.stdout

    def read() -> None:
        for line in stream:
            lines.put(line.rstrip("\n"))
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=HANG)
        except queue.Empty:
            return
        if not line:
            return
        yield line


def main(n: int, first: int, seconds: float = 3600.0) -> int:
    """Check n mutated files; return how many were wrong."""
    found, largest, wrong = Counter[tuple[str, str]](), 0.0, 0
    for seed, name, state, memory in results(first, n, seconds):
        if state.startswith("wrong"):
            print(f"seed {seed}: {name}: {state}", flush=True)
            wrong += 1
        found[name, state.partition(":")[0]] += 1
        largest = max(largest, memory)
    names = sorted({name for name, _ in found})
    print(f"{'file':24} {'read':>8} {'error':>8} {'wrong':>8}")
    for name in names:
        print(f"{name:24} {found[name, 'read']:8} {found[name, 'error']:8} {found[name, 'wrong']:8}")
    print(f"{sum(found.values())} mutated files, {wrong} wrong; most memory for one {largest / 1e6:.0f} MB")
    return wrong + explode()


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "--bomb":
        bomb = Path(sys.argv[2])
        state, memory = judge(bomb.name, bomb.read_bytes(), bomb.parent)
        print(int(memory), state)
    else:
        sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:4]))))
