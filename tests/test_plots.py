from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gibbsot import plots
from gibbsot.models.nmf import Epoch

RNG = np.random.default_rng(0)
NAN = np.nan


def drawn(figure: Figure) -> np.ndarray:
    """The pixels of the figure, from 0 to 1."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255


def tiles(figure: Figure) -> np.ma.MaskedArray:
    (ax,) = figure.axes
    (image,) = ax.images
    return image.get_array()


@pytest.fixture
def figure():
    return Figure()


def test_components_stand_in_the_order_given(figure):
    images = np.zeros((5, 6))
    images[np.arange(5), np.arange(5)] = np.arange(1, 6)  # each has its mass at its own pixel
    plots.components(figure, images, (2, 3), columns=3)
    pixels = tiles(figure)
    assert pixels.shape == (2 + 2 + 2, 3 * (3 + 2) - 2)
    for k in range(5):
        top, left = 4 * (k // 3), 5 * (k % 3)
        np.testing.assert_array_equal(pixels[top : top + 2, left : left + 3].ravel(), np.eye(6)[k])
    assert pixels.mask[4:, 10:].all()  # there is no sixth
    assert drawn(figure).std() > 0.05


def test_components_choose_their_columns(figure):
    plots.components(figure, RNG.random((40, 12)), (4, 3))
    height, width = tiles(figure).shape
    assert 1 < width / height < 2.5


def test_one_empty_component_is_drawn(figure):
    plots.components(figure, np.zeros((1, 6)), (2, 3))
    assert tiles(figure).max() == 0


def test_reconstruction_puts_data_above_mixtures(figure):
    X, mixtures = np.zeros((3, 4)), np.zeros((3, 4))
    X[:, 0], mixtures[:, 3] = 1, 1
    plots.reconstruction(figure, X, mixtures, (2, 2), columns=2)
    pixels = tiles(figure)
    np.testing.assert_array_equal(pixels[:2, :2], [[1, 0], [0, 0]])
    np.testing.assert_array_equal(pixels[4:6, :2], [[0, 0], [0, 1]])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["data", "mixture"] * 2
    assert drawn(figure).std() > 0.05


def test_convergence_shows_estimate_evaluations_and_temperature(figure):
    history = [Epoch(1 / k, 0.5 / k if k % 3 == 0 else NAN, 0.6 / k if k % 3 == 0 else NAN, 1e-3 / k, 1, 50, k)
               for k in range(1, 10)]  # fmt: skip
    plots.convergence(figure.subplots(), history)
    left, right = figure.axes
    estimate, exact = left.lines
    np.testing.assert_array_equal(estimate.get_ydata(), [e.estimate for e in history])
    np.testing.assert_array_equal(exact.get_xdata(), [3, 6, 9])
    np.testing.assert_allclose(exact.get_ydata(), [0.2, 0.1, 0.6 / 9])
    np.testing.assert_array_equal(right.lines[0].get_ydata(), [e.temperature for e in history])
    assert right.get_yscale() == "log"
    assert left.get_xlabel() == "epoch"
    assert len(left.get_legend().get_texts()) == 3
    assert drawn(figure).std() > 0.02


def test_convergence_of_one_epoch_without_an_evaluation(figure):
    plots.convergence(figure.subplots(), [Epoch(1.0, NAN, NAN, 1e-3, 1.0, 50.0, 0.1)])
    assert drawn(figure).std() > 0


GOOD = np.ones((2, 6))


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda f: plots.components(f, np.ones((2, 5)), (2, 3)), "images"),
        (lambda f: plots.components(f, np.ones((2, 2, 3)), (2, 3)), "images"),
        (lambda f: plots.components(f, np.ones((0, 6)), (2, 3)), "images"),
        (lambda f: plots.components(f, np.full((2, 6), NAN), (2, 3)), "images"),
        (lambda f: plots.components(f, GOOD, (6,)), "shape"),
        (lambda f: plots.components(f, GOOD, (2, 0)), "shape"),
        (lambda f: plots.components(f, GOOD, (2, 3), columns=0), "columns"),
        (lambda f: plots.reconstruction(f, np.ones((2, 5)), GOOD, (2, 3)), "X"),
        (lambda f: plots.reconstruction(f, GOOD, np.ones((2, 5)), (2, 3)), "mixtures"),
        (lambda f: plots.reconstruction(f, GOOD, np.ones((3, 6)), (2, 3)), "mixtures"),
        (lambda f: plots.convergence(f.subplots(), []), "history"),
    ],
)
def test_wrong_shapes_name_the_argument(figure, draw, name):
    with pytest.raises(ValueError, match=f"^{name}:"):
        draw(figure)
