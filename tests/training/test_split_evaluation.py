"""What is collected over a split: the rows of all batches, the mean loss."""

import numpy as np
import pytest
import torch
from reference.checkpoints import make_checkpoint

from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference.checkpoint import build_network, joined
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.training.evaluation import MeanLoss, SplitPredictions
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.mark.parametrize("size", [1, 7, 10, 23, 64])
def test_rows_of_all_batches_come_back_by_graph_and_once(size: int) -> None:
    predictions, targets = torch.randn(23, 2), torch.randn(23, 2)
    targets[3, 0] = torch.nan
    order, collected = torch.randperm(23), SplitPredictions()
    for rows in (*order.split(size), order[:2]):  # processes fill up their last batches
        collected.update(predictions[rows], targets[rows], rows + 100)
    found = collected.compute()
    for array, expected in zip(found, (targets, predictions), strict=True):
        assert array.dtype == "float64"
        assert torch.equal(torch.tensor(array).nan_to_num(), expected.double().nan_to_num())


def test_mean_loss_is_over_labels_and_keeps_nan() -> None:
    mean = MeanLoss()
    mean.update(torch.tensor(0.0), torch.tensor(0))
    assert mean.compute() == 0
    mean.update(torch.tensor(6.0), torch.tensor(3))
    mean.update(torch.tensor(1.0), torch.tensor(1))
    assert mean.compute() == 7 / 4
    mean.update(torch.tensor(torch.nan), torch.tensor(1))
    assert mean.compute().isnan()


@pytest.mark.parametrize("kind", ["regression", "binary"])
@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_outputs_of_an_ensemble_stand_for_its_mean_value(kind, size, tmp_path):
    each = [make_checkpoint(kind=kind, norm="bn+bn") for _ in range(3)]
    for one in each:  # of 1000 probabilities are 0 and 1, whose logits a loss must not see
        one["state_dict"]["model.readout.weight"] *= size
    smiles, path = ["CCO", "c1ccccc1", "CN"], tmp_path / "ensemble.ckpt"
    torch.save(joined(dict(zip("abc", each, strict=True))), path)
    predictor = Predictor.load(path, "cpu")
    graphs = predictor.reader.featurize([parse_smiles(one) for one in smiles]).graphs
    store = GraphStore.from_graphs([graphs], 5)
    batch = Collator(store, predictor.vocabulary)(range(3))
    module = GraphormerModule.load_from_checkpoint(path).eval()
    assert module.members == ()  # the first alone
    options = each[0]["graphormer_sepnorm"]["model"]
    others = torch.load(path, weights_only=True)["members"]
    module.members = tuple(build_network(options, weights).eval() for weights in others)
    with torch.inference_mode():
        outputs = module.outputs(batch)
        losses, _ = module.summed_loss(outputs, torch.ones(3, 1), None)
    expected = predictor.predict(smiles).values
    values = outputs.sigmoid() if kind == "binary" else outputs * 2 + 3
    np.testing.assert_allclose(values.numpy(), expected, rtol=1e-5, atol=1e-12)
    assert losses.isfinite()
