"""The figures of a report: what is drawn is what the results say."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from example_results import LAYERS, binary, regression
from matplotlib import image
from sklearn.metrics import average_precision_score, roc_auc_score

from graphormer_sepnorm.chem.drawing import molecules_png
from graphormer_sepnorm.compare.predictions import Predictions, read_predictions
from graphormer_sepnorm.compare.report import figures, geometry_figures, prediction_figures
from graphormer_sepnorm.compare.results_file import Results

PNG = b"\x89PNG"
COLOURS = {"sharenorm": "#0072B2", "sepnorm": "#D55E00", "bn+bn": "#009E73"}
made = Results.from_plain


def made_up(make, directory, molecules: int) -> tuple[dict, Predictions | None]:
    plain = make(directory, molecules=molecules)
    path = directory / "predictions.csv"
    return plain, read_predictions(path, plain["task"]["targets"], [*COLOURS])


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    return made_up(regression, tmp_path_factory.mktemp("values"), 200)


@pytest.fixture
def plain(values):
    """Results as they stand in a file, to be changed."""
    return copy.deepcopy(values[0])


@pytest.fixture(scope="module")
def results(values):
    return made(values[0])


@pytest.fixture(scope="module")
def predictions(values):
    return values[1]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Results and predictions of a classification."""
    plain, predictions = made_up(binary, tmp_path_factory.mktemp("classes"), 400)
    return made(plain), predictions


def line_of(axes, name):
    """The curve of an arm."""
    return next(line for line in axes.lines if line.get_color() == COLOURS[name])


def test_learning_curves_are_means_and_bands_of_extremes(results):
    figure = figures.learning_curves(results)
    runs = results.arms[1].runs
    curves = np.array([[point.validation for point in run.curve] for run in runs])
    line = line_of(figure.axes[1], "sepnorm")
    assert line.get_ydata() == pytest.approx(curves.mean(0))
    band = figure.axes[1].collections[1].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(curves.max())
    assert figure.axes[2].get_xlim()[0] > 12


def test_a_seed_that_ended_early_does_not_bend_the_mean(plain):
    del plain["arms"][0]["runs"][0]["curve"][10:]
    axes = figures.learning_curves(made(plain)).axes[1]
    first, *rest = [line for line in axes.lines if line.get_color() == COLOURS["sharenorm"]]
    assert list(first.get_xdata()) == list(range(1, 11))
    assert [list(line.get_xdata()) for line in rest] == [list(range(11, 25))] * 2


def test_a_wide_range_is_logarithmic(plain):
    assert figures.learning_curves(made(plain)).axes[1].get_yscale() == "linear"
    plain["arms"][0]["runs"][0]["curve"][0]["validation"] = 1000.0
    assert figures.learning_curves(made(plain)).axes[1].get_yscale() == "log"


def test_paired_seeds_show_each_run_and_the_interval(results):
    left, right = figures.paired_seeds(results).axes
    dots = [tuple(map(tuple, one.get_offsets())) for one in left.collections[::2]]
    assert [len(of_arm) for of_arm in dots] == [3, 3, 3]
    assert [y for _, y in dots[1]] == pytest.approx([run.test for run in results.arms[1].runs])
    test = results.comparisons[0].test
    (interval,) = right.containers[0].lines[2][0].get_segments()
    assert interval[:, 1] == pytest.approx([test.low, test.high])
    assert "lower is better" in left.get_ylabel()


def test_without_results_nothing_is_drawn(plain):
    for arm in plain["arms"]:
        for run in arm["runs"]:
            run |= {"test": None, "curve": [], "geometry": []}
    plain["comparisons"] = []
    draws = [figures.learning_curves, figures.paired_seeds]
    draws += [geometry_figures.uniformity, geometry_figures.effective_rank]
    draws += [geometry_figures.singular_values, geometry_figures.cosine]
    draws += [geometry_figures.features, geometry_figures.probes]
    assert [draw(made(plain)) for draw in draws] == [None] * len(draws)


def test_uniformity_per_layer_marks_the_floor(results):
    figure = geometry_figures.uniformity(results)
    runs = results.arms[0].runs
    floor = runs[0].geometry[0].uniformity_floor
    token, atoms = figure.axes
    for axes, what in ((token, "graph token"), (atoms, "atoms")):
        assert any(list(line.get_ydata()) == [floor, floor] for line in axes.lines)
        found = [[one.uniformity for one in run.geometry if one.what == what] for run in runs]
        mean = np.mean(found, axis=0)
        assert line_of(axes, "sharenorm").get_ydata() == pytest.approx(mean)
        assert [text.get_text() for text in axes.get_xticklabels()][-1] == "out"
    assert len(line_of(token, "sharenorm").get_xdata()) == len(LAYERS)


def test_null_in_the_geometry_leaves_a_gap_only(plain):
    for run in plain["arms"][0]["runs"]:
        for entry in run["geometry"]:
            if entry["layer"] == "layer 2":
                entry |= {"uniformity": None, "effective_rank_centred": None, "probes": None}
            entry["log_singular_values"][-3:] = [None] * 3
    figure = geometry_figures.uniformity(made(plain))
    assert 1 not in line_of(figure.axes[0], "sharenorm").get_xdata()
    spectrum = geometry_figures.singular_values(made(plain)).axes[0]
    assert len(line_of(spectrum, "sharenorm").get_xdata()) == 77
    assert geometry_figures.probes(made(plain)) is not None


def test_a_probe_far_below_zero_stays_in_view(plain):
    for run in plain["arms"][0]["runs"]:
        for entry in run["geometry"]:
            if entry["probes"]:
                entry["probes"]["rings"] = -50.0
    axes = geometry_figures.probes(made(plain)).axes[1]
    assert axes.get_title() == "probe for rings"
    low = axes.get_ylim()[0]
    assert min(line_of(axes, "sharenorm").get_ydata()) > low > -1


def test_heat_maps_hold_the_shares_of_the_counts(results):
    axes = geometry_figures.features(results).axes[0]
    output = results.arms[0].runs[0].cloud("output", "graph token")
    counts = np.array(output.histogram["counts"])
    shares = axes.collections[0].get_array()
    assert np.asarray(shares) == pytest.approx(counts / counts.sum(1, keepdims=True))
    assert axes.yaxis_inverted()


def test_panels_have_the_same_axes(results, predictions):
    axes = prediction_figures.predicted_against_true(results, predictions).axes
    assert len(axes) == 3
    assert len({one.get_xlim() for one in axes}) == len({one.get_ylim() for one in axes}) == 1
    assert axes[0].get_xlim() == axes[0].get_ylim()
    points = np.asarray(axes[1].collections[0].get_offsets())
    assert points[:, 1] == pytest.approx(predictions.arms["sepnorm"])


def test_no_residual_is_lost_beyond_the_axes(results, predictions):
    figure = prediction_figures.residuals(results, predictions)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        points = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections])
        low, high = axes.get_ylim()
        assert len(points) == len(predictions.target)
        assert ((points[:, 1] > low) & (points[:, 1] < high)).all()


def test_error_by_size_groups_every_molecule_once(results, predictions):
    figure = prediction_figures.error_by_size(results, predictions)
    labels = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert sum(int(label.partition("(")[2].strip(")")) for label in labels) == 200
    assert 5 <= len(labels) <= 10
    same_size = replace(predictions, atoms=np.full(200, 7.0))
    assert prediction_figures.error_by_size(results, same_size) is None


def test_the_molecules_drawn_are_those_that_change_most(results, predictions, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        prediction_figures,
        "molecules_png",
        lambda smiles, legends: drawn.update(zip(legends, smiles, strict=True)) or PNG,
    )
    assert prediction_figures.largest_changes(results, predictions, "sepnorm") == PNG
    changes = np.abs(predictions.errors("sepnorm") - predictions.errors("sharenorm"))
    assert [int(legend.partition(":")[0]) for legend in drawn] == np.argsort(-changes)[:12].tolist()
    for legend in drawn:
        number = int(legend.partition(":")[0])
        better = predictions.errors("sepnorm")[number] < predictions.errors("sharenorm")[number]
        assert ("better by" in legend) == better


def test_a_picture_of_molecules_survives_what_it_cannot_read(tmp_path):
    png = molecules_png(["CCO", "not a molecule", ""], ["ethanol", "b", "c"])
    assert png.startswith(PNG)
    figures.save(png, tmp_path / "molecules.png")
    pixels = image.imread(tmp_path / "molecules.png")
    width = pixels.shape[1] // 3
    height = pixels.shape[0]
    for number in range(3):  # a molecule or a note in each place, and its legend below
        place = pixels[:, number * width : (number + 1) * width, :3]
        assert (place[: int(0.7 * height)] < 0.5).any()
        assert (place[int(0.8 * height) :] < 0.5).any()


def test_curves_enclose_the_areas_that_are_reported(classes):
    results, predictions = classes
    left, right = prediction_figures.roc_and_precision(results, predictions).axes
    for name, scores in predictions.arms.items():
        x, y = line_of(left, name).get_data()
        assert np.trapezoid(y, x) == pytest.approx(roc_auc_score(predictions.target, scores))
        recall, precision = line_of(right, name).get_data()
        steps = np.diff(np.append(0.0, recall))
        expected = average_precision_score(predictions.target, scores)
        assert (steps * precision).sum() == pytest.approx(expected)
        assert (steps >= 0).all()


def test_figures_of_a_classification(classes):
    results, predictions = classes
    left, right = prediction_figures.roc_and_precision(results, predictions).axes
    assert line_of(left, "sepnorm").get_ydata()[-1] == 1
    assert right.lines[0].get_ydata()[0] == predictions.target.mean()
    axes = prediction_figures.calibration(results, predictions).axes[1]
    # Ten groups, and Wilson's interval of the first, worked by hand: few or none of 40 are active.
    first = np.argsort(predictions.arms["sepnorm"], kind="stable")[:40]
    share, z2 = predictions.target[first].mean(), 1.959964**2
    half = np.sqrt(share * (1 - share) * z2 / 40 + (z2 / 80) ** 2)
    (intervals,) = axes.containers[0].lines[2]
    assert len(intervals.get_segments()) == 10
    expected = (np.array([share + z2 / 80 - half, share + z2 / 80 + half])) / (1 + z2 / 40)
    assert intervals.get_segments()[0][:, 1] == pytest.approx(expected, abs=1e-6)
    one_class = replace(predictions, target=np.zeros(400))
    assert prediction_figures.roc_and_precision(results, one_class) is None
    assert prediction_figures.calibration(results, one_class) is not None


def test_of_several_targets_the_first_is_read_and_gaps_are_left_out(tmp_path):
    header = "number,smiles,atoms,target:gap,target:homo,pred_sharenorm:gap,pred_sharenorm:homo"
    rows = ["0,C,1,0.5,9,0.6,9", "1,CC,2,,9,0.6,9", "2,CCC,3,1.5,9,1.0,9"]
    path = tmp_path / "predictions.csv"
    path.write_text("\n".join([header, *rows]))
    predictions = read_predictions(path, ["gap", "homo"], ["sharenorm", "sepnorm"])
    assert predictions.target_name == "gap"
    assert predictions.target.tolist() == [0.5, 1.5]
    assert predictions.numbers == ("0", "2")
    assert list(predictions.arms) == ["sharenorm"]
    assert predictions.errors("sharenorm") == pytest.approx([0.1, 0.5])
    path.write_text(header)
    assert read_predictions(path, ["gap", "homo"], ["sharenorm", "sepnorm"]) is None
    assert read_predictions(tmp_path / "none.csv", ["gap"], ["sharenorm"]) is None


def test_arms_keep_their_colours_and_many_arms_fit(plain):
    for number in range(6):
        plain["arms"].append(plain["arms"][2] | {"name": f"a long name of an arm, {number}"})
    results = made(plain)
    shown = figures.styles(results)
    assert len({(style.colour, style.line) for style in shown.values()}) == len(shown) == 9
    figure = geometry_figures.features(results)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 9 * 2 + 1
