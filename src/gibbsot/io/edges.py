"""Graphs and weights of their nodes from text files: one edge, or one node, a line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .formats import decoded_text


class Edges(NamedTuple):
    """A graph whose nodes have names.

    Attributes
    ----------
    names : list of str
        The names of the nodes, in the order in which they come up.
    graph : scipy.sparse.csr_array of shape (n, n)
        The lengths; of several edges between two nodes the shortest.
    """

    names: list[str]
    graph: sparse.csr_array

    @classmethod
    def read(cls, path: Path) -> Edges:
        """Return the graph of a table with the columns from, to and length; its first line may be a header.

        Raises
        ------
        ValueError
            If a line has other columns, or a length that is not a number of at least 0; it names the line.
        """
        numbers: dict[str, int] = {}
        lengths: dict[tuple[int, int], float] = {}
        for line, (tail, head, text) in _rows(path, ("from", "to", "length")):
            length = _number(text, path, line, "a length")
            pair = numbers.setdefault(tail, len(numbers)), numbers.setdefault(head, len(numbers))
            lengths[pair] = min(length, lengths.get(pair, math.inf))
        if not lengths:
            raise ValueError(f"{path}: has no edges; expected lines from,to,length")
        ends, n = np.array(list(lengths), np.int64), len(numbers)
        stored = sparse.coo_array((np.array(list(lengths.values())), (ends[:, 0], ends[:, 1])), (n, n))
        return cls(list(numbers), sparse.csr_array(stored))

    def weights(self, path: Path) -> NDArray[np.float64]:
        """Return the weights of the nodes from a table with the columns node and weight.

        Raises
        ------
        ValueError
            If a node is not in the graph or has two lines, or a weight is not a number >= 0; it names the line.
        """
        numbers, found = {name: k for k, name in enumerate(self.names)}, np.zeros(len(self.names))
        seen: dict[str, int] = {}
        for line, (node, text) in _rows(path, ("node", "weight")):
            if node not in numbers:
                raise ValueError(f"{path}: line {line}: node {node!r} is in no edge; expected a node of the graph")
            if node in seen:
                raise ValueError(f"{path}: line {line}: node {node!r} has a weight in line {seen[node]} already")
            seen[node] = line
            found[numbers[node]] = _number(text, path, line, "a weight")
        if not found.any():
            raise ValueError(f"{path}: no node has weight; expected lines node,weight")
        return found


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a table with their numbers, without empty ones and a header.

    The first mark that gives the first line as many columns as expected separates those of all lines.
    """
    text = decoded_text(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    marks = (mark for mark in ",\t; " if len(_split(first, mark)) == len(columns))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=next(marks, ","), skipinitialspace=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != len(columns):
                raise ValueError(
                    f"{path}: line {reader.line_num}: has {len(cells)} columns; expected {','.join(columns)}"
                )
            if reader.line_num == 1 and not _is_number(cells[-1]):
                continue
            yield reader.line_num, cells
    except csv.Error as error:  # such as a field that is too long
        raise ValueError(f"{path}: line {reader.line_num}: {error}") from None


def _split(line: str, mark: str) -> list[str]:
    """Return the fields of a line; none of one that cannot be read."""
    try:
        return next(csv.reader([line.strip()], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, path: Path, line: int, what: str) -> float:
    """Return a finite number that is not negative."""
    value = float(text) if _is_number(text) else math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{path}: line {line}: {text!r}; expected {what} of at least 0")
    return value
