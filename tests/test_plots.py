from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import sparse

import gibbsot
from gibbsot import plots
from gibbsot.models._loop import Epoch
from gibbsot.plots.style import label

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


def test_components_have_numbers(figure):
    plots.components(figure, RNG.random((5, 6)), (2, 3), columns=3, numbers=[4, 0, 2, 1, 3])
    texts = figure.axes[0].texts
    assert [text.get_text() for text in texts] == ["4", "0", "2", "1", "3"]
    assert [text.xy for text in texts][3] == (-0.5, 3.5)  # the first of the second row
    drawn(figure)
    panels = Figure().subfigures(1, 2)
    plots.components(panels[0], RNG.random((5, 6)), (2, 3), numbers=range(5))
    drawn(panels[0].figure)


def test_profiles_of_measures_that_are_no_images(figure):
    rows = RNG.random((5, 8))
    plots.profiles(figure, rows, numbers=[4, 0, 2, 1, 3])
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in shown] == ["4", "0", "2", "1", "3"]
    for ax, row in zip(shown, rows, strict=True):
        np.testing.assert_array_equal(ax.patches[0].get_data().values, row)
    assert drawn(figure).std() > 0.05


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


def test_convergence_survives_an_outlier(figure):
    values = [1e6 if k == 7 else np.inf if k == 12 else 1 + 1 / k for k in range(1, 30)]
    plots.convergence(figure.subplots(), [Epoch(x, NAN, NAN, 1e-3, 1, 50, 1) for x in values])
    left = figure.axes[0]
    assert 2 <= left.get_ylim()[1] < 5
    assert [text.get_text() for text in left.texts] == ["1 above, up to 1e+06"]
    assert drawn(figure).std() > 0.02


def test_convergence_keeps_a_steep_start(figure):
    plots.convergence(figure.subplots(), [Epoch(100 / k, NAN, NAN, 1e-3, 1, 50, 1) for k in range(1, 30)])
    assert figure.axes[0].get_ylim()[1] >= 100
    assert not figure.axes[0].texts


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
        (lambda f: plots.profiles(f, np.ones(5)), "rows"),
    ],
)
def test_wrong_shapes_name_the_argument(figure, draw, name):
    with pytest.raises(ValueError, match=f"^{name}:"):
        draw(figure)


# plans


def test_a_plan_carries_its_marginals_and_names(figure):
    Z = np.array([[0.1, 0.2, 0.0], [0.0, 0.3, 0.4]])
    plots.plan(figure.subplots(), Z, names=("a.png", "$b$.png"))
    (ax,) = figure.axes
    top, right = ax.child_axes
    np.testing.assert_allclose(top.patches[0].get_data().values, [0.3, 0.7])
    np.testing.assert_allclose(right.patches[0].get_data().values, [0.1, 0.5, 0.4])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a.png", r"\$b\$.png")
    assert ax.get_legend() is None  # there is nothing to tell apart
    assert drawn(figure).std() > 0.05


def test_a_plan_between_points_on_a_line(figure):
    x, y = np.array([3.0, 1.0]), np.array([[5.0], [9.0]])
    plots.plan(figure.subplots(), np.eye(2) / 2, points=(x, y))
    (ax,) = figure.axes
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), [[3, 5], [1, 9]])
    assert (ax.get_xlim(), ax.get_ylim()) == ((1, 3), (5, 9))
    drawn(figure)


def test_a_plan_of_many_entries_is_an_image(figure):
    n = 6000
    plots.plan(figure.subplots(), sparse.eye_array(n) / n, sparse.eye_array(n) / n)
    (ax,) = figure.axes
    assert not ax.collections
    for image in ax.images:
        pixels = image.get_array()
        np.testing.assert_array_equal(~pixels.mask, np.eye(len(pixels), dtype=bool))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["exact", "Gibbs-OT"]
    drawn(figure)


def test_few_arcs_are_lines_between_dots(figure):
    X, Y = RNG.random((5, 2)), RNG.random((4, 2))
    Z = np.zeros((5, 4))
    Z[0, 1], Z[3, 2] = 0.6, 0.4
    plots.displacements(figure.subplots(), Z, X, Y, ("a", "_b"))
    (ax,) = figure.axes
    first, second, lines = ax.collections
    np.testing.assert_array_equal(first.get_offsets(), X[[0, 3]])
    np.testing.assert_array_equal(second.get_offsets(), Y[[1, 2]])
    np.testing.assert_allclose(lines.get_segments(), np.stack([X[[0, 3]], Y[[1, 2]]], axis=1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", " _b"]
    assert drawn(figure).std() > 0.02


@pytest.mark.parametrize("grid", [False, True])
def test_many_arcs_are_a_field(figure, grid):
    """All mass moves by (3, 1): so does every arrow."""
    X = np.indices((40, 30))[::-1].reshape(2, -1).T.astype(float)
    n = len(X)
    shape = (41, 33) if grid else None
    plots.displacements(figure.subplots(), sparse.eye_array(n) / n, X, X + np.array([3, 1]), ("a", "b"), shape=shape)
    (ax,) = figure.axes
    field = ax.collections[-1]
    assert field.N <= 14 * 14
    np.testing.assert_allclose(field.U, 3)
    np.testing.assert_allclose(field.V, 1)
    assert len(ax.images) == grid
    assert ax.yaxis_inverted() == grid
    if grid:  # green, both, pink and nothing
        pixels = ax.images[0].get_array()
        assert pixels[0, 0].argmax() == 1
        assert pixels[40, 32].argmax() == 0
        assert np.ptp(pixels[10, 10]) < 1e-12 < 1 - pixels[10, 10].max()
        np.testing.assert_array_equal(pixels[0, 32], 1)
    drawn(figure)


def test_long_arrows_are_few(figure):
    X = np.indices((40, 30))[::-1].reshape(2, -1).T.astype(float)
    n = len(X)
    plots.displacements(figure.subplots(), sparse.eye_array(n) / n, X, X + np.array([30, 1]), ("a", "b"))
    field = figure.axes[0].collections[-1]
    assert field.N <= 7 * 7
    np.testing.assert_allclose(field.U, 30)


def test_what_two_images_share_is_grey(figure):
    X = np.indices((1, 4))[::-1].reshape(2, -1).T.astype(float)
    Z = np.diag([1.0, 2.0, 1.0, 0.0])
    Z[0, 3] = 1.0  # the first pixel has more in the first image, the last one only in the second
    plots.displacements(figure.subplots(), Z, X, X, ("a", "b"), shape=(1, 4))
    pixels = figure.axes[0].images[0].get_array()[0]
    np.testing.assert_allclose(np.ptp(pixels[1:3], axis=1), 0, atol=1e-12)
    assert pixels[2, 0] < 1
    assert (pixels[0].argmax(), pixels[3].argmax()) == (1, 0)


def test_a_plan_in_space_has_three_projections(figure):
    weights = RNG.random((3, 4, 5))
    X = np.indices(weights.shape)[::-1].reshape(3, -1).T.astype(float)
    Z = sparse.diags_array(weights.ravel())
    plots.projections(figure, Z, X, X, ("a", "b"), shape=weights.shape)
    assert [ax.images[0].get_array().shape[:2] for ax in figure.axes] == [(4, 5), (3, 5), (3, 4)]
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes] == [("x", "y"), ("x", "z"), ("y", "z")]
    assert drawn(figure).std() > 0.05
    (legend,) = figure.legends  # one for all
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert all(ax.get_legend() is None for ax in figure.axes)
    other = Figure()
    plots.projections(other, Z, X, X + 1, ("a", "b"))
    assert drawn(other).std() > 0.02


def test_names_are_drawn_as_they_are_or_as_boxes(figure):
    ax = figure.subplots()
    ax.set_title(label("$\\frac{1$ \u5730\x1b\U0001f600"))
    drawn(figure)  # would warn of missing glyphs, or fail to parse
    assert label("a\u5730$") == "a\u25a1\\$"


def test_points_of_the_plane_keep_the_distances_of_points_in_the_plane():
    points = np.random.default_rng(0).normal(size=(12, 2))
    squared = ((points[:, None] - points) ** 2).sum(axis=2)
    found = plots.plane(squared)
    np.testing.assert_allclose(((found[:, None] - found) ** 2).sum(axis=2), squared, atol=1e-9)


def test_clusters_are_neighbours_in_a_heat_map():
    group = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], 5))
    D = np.abs(group[:, None] - group) + 0.1 * (1 - np.eye(15))
    assert np.count_nonzero(np.diff(group[plots.cluster_order(D)])) == 2
    figure = plots.new_figure(4, 3)
    plots.heat_map(figure.subplots(), D)
    assert figure.axes[0].images[0].get_array().shape == (15, 15)


def test_thumbnails_do_not_overlap():
    points = np.array([[0.0, 0.0], [1e-3, 0.0], [1.0, 1.0]])
    ax = plots.new_figure(4, 3).subplots()
    plots.thumbnails(ax, points, np.eye(3, 4), (2, 2))
    assert len(ax.images) == 2
    assert len(ax.lines[0].get_xdata()) == 3


def test_bad_matrices_points_and_paths():
    ax = plots.new_figure(4, 3).subplots()
    for D, message in ((np.ones((2, 3)), "D: expected shape"), ([[np.nan]], "D: has NaN")):
        with pytest.raises(ValueError, match=message):
            plots.heat_map(ax, D)
    with pytest.raises(ValueError, match="points: expected shape"):
        plots.thumbnails(ax, np.ones((2, 3)))
    with pytest.raises(ValueError, match="images: expected 2 as there are points, got 1"):
        plots.thumbnails(ax, np.ones((2, 2)), np.ones((1, 4)), (2, 2))
    with pytest.raises(ValueError, match="paths: expected shape"):
        plots.geodesics(plots.new_figure(4, 3), np.ones((1, 2, 4)), (2, 2), times=[0.0])


def line_graph(n):
    return gibbsot.GraphCost(sparse.diags_array(np.ones(n - 1), offsets=1, shape=(n, n)).tocsr(), directed=False)


POINTS = RNG.normal(size=(2, 9, 2))
PICTURES = {
    "points": (None, gibbsot.PointCost(*POINTS), {}),
    "line": (None, gibbsot.PointCost(*POINTS[:, :, :1]), {}),
    "six dimensions": (None, gibbsot.PointCost(*RNG.normal(size=(2, 9, 6))), {}),
    "partial": (None, gibbsot.PointCost(*POINTS), {"penalty": 1.0}),
    "unbalanced": (None, gibbsot.PointCost(*POINTS), {"kl": 1.0}),
    "histograms": (RNG.random((2, 9)), gibbsot.GridCost(9), {"normalize": True}),
    "partial histograms": (RNG.random((2, 9)), gibbsot.GridCost(9), {"penalty": 0.01}),
    "images": (RNG.random((2, 4, 5)), gibbsot.GridCost((4, 5)), {"normalize": True}),
    "city block": (RNG.random((2, 4, 5)), gibbsot.GridCost((4, 5), power=1), {"normalize": True}),
    "matrix": (None, RNG.random((9, 7)), {}),
    "partial matrix": (None, RNG.random((9, 7)), {"mass": 0.5}),
    "cosine": (None, gibbsot.PointCost(*POINTS, "cosine"), {}),
    "graph": (RNG.random((2, 9)), line_graph(9), {"normalize": True}),
    "partial graph": (RNG.random((2, 9)), line_graph(9), {"penalty": 1.0}),
    "pairs": (None, gibbsot.SparseCost(sparse.csr_array(np.eye(4) + 1)), {}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_results_are_drawn_by_their_cost(name, figure):
    measures, cost, options = PICTURES[name]
    result = gibbsot.solve(*((None, None) if measures is None else measures), cost, **options)
    ax = figure.subplots()
    assert result.plot(ax, names=("before", "after")) is ax
    texts = [ax.get_xlabel(), ax.get_ylabel()] + [text.get_text() for text in getattr(ax.get_legend(), "texts", [])]
    assert any("before" in text for text in texts)
    assert drawn(figure).std() > 0.02


def test_results_in_space_have_three_axes(figure):
    result = gibbsot.solve(None, None, gibbsot.PointCost(*RNG.normal(size=(2, 9, 3))))
    axes = figure.subplots(1, 3)
    assert list(result.plot(axes)) == list(axes)
    assert [ax.get_xlabel() + ax.get_ylabel() for ax in axes] == ["xy", "xz", "yz"]
    with pytest.raises(ValueError, match="ax: expected three Axes of matplotlib, got 1"):
        result.plot(axes[0])


def test_axes_of_matrices_are_indices_or_labels(figure):
    pd = pytest.importorskip("pandas")
    left, right = figure.subplots(1, 2)
    gibbsot.solve(None, None, np.ones((5, 3)) + np.eye(5, 3)).plot(left)
    drawn(figure)
    assert {float(tick).is_integer() for tick in left.get_xticks()} == {True}
    assert left.get_xlim() == (-0.5, 4.5)
    gibbsot.solve(None, None, pd.DataFrame(np.eye(3), ["a", "b", "c"], ["x", "y", "z"])).plot(right)
    assert [text.get_text() for text in right.get_xticklabels()] == ["a", "b", "c"]
    assert [text.get_text() for text in right.get_yticklabels()] == ["x", "y", "z"]


def test_results_are_drawn_in_a_new_figure(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    result = gibbsot.solve([1, 0], [0, 1], [[0, 1], [1, 0]])
    ax = result.plot()
    assert plt.gcf() is ax.figure
    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: gibbsot.solve_batch(np.eye(2), None, np.eye(2)).plot(ax), "result of a batch"),
        (lambda ax: gibbsot.solve([1], [1], [[9]], penalty=1).plot(ax), "nothing is transported"),
        (lambda ax: gibbsot.solve([1], [1], [[9]]).plot(ax, positions=[[0, 0]]), "positions: .* is not a graph"),
        (lambda ax: gibbsot.solve([1, 0], [0, 1], line_graph(2)).plot(ax, positions=[[0, 0]]), r"shape \(2, 2\)"),
        (lambda ax: gibbsot.solve(None, None, line_graph(2001)).plot(ax), r"positions: .* shape \(2001, 2\)"),
    ],
)
def test_results_that_cannot_be_drawn(draw, message, figure):
    with pytest.raises(ValueError, match=message):
        draw(figure.subplots())


def test_heat_maps_show_names(figure):
    pd = pytest.importorskip("pandas")
    left, right = figure.subplots(1, 2)
    D = np.array([[0.0, 9.0, 1.0], [9.0, 0.0, 8.0], [1.0, 8.0, 0.0]])
    plots.heat_map(left, pd.DataFrame(D, list("abc"), list("abc")))
    assert [text.get_text() for text in left.get_yticklabels()] == ["b", "c", "a"]
    plots.heat_map(right, D, names=["$x$", "y", "z"], order=[0, 1, 2])
    assert [text.get_text() for text in right.get_yticklabels()] == [r"\$x\$", "y", "z"]
    drawn(figure)
