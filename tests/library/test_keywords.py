"""Networks whose forward takes keywords, such as those of Hugging Face: sums, noise and replay."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dprepro
from dprepro import sums as private_sums
from dprepro.clipping.clippers import largest_inputs
from tests.privacy.corpus import alone

CLIP = 0.5
SEEDED = torch.Generator().manual_seed(0)
WORDS = torch.randint(1, 90, (8, 6), generator=SEEDED)
LENGTHS = torch.tensor([6, 3, 5, 6, 1, 2, 6, 4])
PRESENT = (torch.arange(6) < LENGTHS[:, None]).long()
LABELS = torch.randint(3, (8,), generator=SEEDED)
BATCH = {"input_ids": WORDS * PRESENT, "attention_mask": PRESENT}


def bert(dropout: float = 0.0) -> Any:
    from transformers import BertConfig, BertForSequenceClassification  # which takes seconds

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 90, "max_position_embeddings": 16, "num_labels": 3}
    widths: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    dropouts: dict[str, Any] = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForSequenceClassification(BertConfig(**sizes, **widths, **dropouts, intermediate_size=16))


def gpt() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 90, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def own_loss(outputs: Any, label: Tensor) -> Tensor:
    loss: Tensor = outputs.loss
    return loss


def way(net: nn.Module) -> list[str]:
    return [factory.way.__name__ for factory, *_ in private_sums._FACTORIES[net][2].values()]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("mask", ["of tokens", "of attention"])
def test_sums_of_a_network_with_keywords_are_those_of_single_examples(mask: str, frozen: bool) -> None:
    from transformers import BatchEncoding

    net = bert().double()
    net.bert.embeddings.requires_grad_(not frozen)
    norms, expected = alone(net, {**BATCH, "labels": LABELS}, LABELS, CLIP, own_loss)
    batch = dict(BATCH)
    if mask == "of attention":  # which transformers doesn't look into, so that it runs under `vmap`
        batch["attention_mask"] = PRESENT[:, None, None, :].bool()
    by_network = dprepro.clipped_sum(net, BatchEncoding({**batch, "labels": LABELS}), None, CLIP)
    of_logits = dprepro.clipped_sum(net, batch, LABELS, CLIP)
    reference = dprepro.clipped_sum(net, batch, LABELS, CLIP, reference=True)
    fast = "BookKeeping" if mask == "of attention" else "OneByOne"
    assert way(net)[:2] == [fast, fast]
    for actual in (by_network, of_logits, reference):
        torch.testing.assert_close(dict(actual.sums), expected)
        torch.testing.assert_close(actual.norms[:, 0], norms)


def test_a_language_model_has_the_loss_of_one_text() -> None:
    """Its logits are of tokens, and its loss is the mean over a text's tokens without padding."""
    net = gpt().double()
    batch = {**BATCH, "labels": WORDS.masked_fill(PRESENT == 0, -100)}
    batch = {name: value[LENGTHS > 1] for name, value in batch.items()}  # one token has no next one
    norms, expected = alone(net, batch, batch["labels"], CLIP, own_loss)
    actual = dprepro.clipped_sum(net, batch, None, CLIP)
    torch.testing.assert_close(dict(actual.sums), expected)
    torch.testing.assert_close(actual.norms[:, 0], norms)


class Two(nn.Module):
    """A network of images and numbers by keyword, with a tensor as its output."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.numbers = nn.Conv2d(1, 2, 3), nn.Linear(4, 32)
        self.last = nn.Linear(32, 3)

    def forward(self, image: Tensor, *, numbers: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.image(image).flatten(1) * self.numbers(numbers).tanh())
        return outputs


def test_inputs_of_two_kinds_by_keyword_have_the_sum_and_the_neighbours_of_single_examples() -> None:
    torch.manual_seed(0)
    net = Two().double()
    batch = {"image": torch.rand(8, 1, 6, 6).double(), "numbers": torch.randn(8, 4).double()}
    actual = dprepro.clipped_sum(net, batch, LABELS, CLIP)
    norms, expected = alone(net, batch, LABELS, CLIP)
    torch.testing.assert_close(actual.norms[:, 0], norms)
    torch.testing.assert_close(dict(actual.sums), expected)
    for place in range(8):
        others = {name: torch.cat([value[:place], value[place + 1 :]]) for name, value in batch.items()}
        labels = torch.cat([LABELS[:place], LABELS[place + 1 :]])
        without = dprepro.clipped_sum(net, others, labels, CLIP).sums
        apart = torch.cat([(actual.sums[name] - without[name]).flatten() for name in without]).norm()
        assert apart <= CLIP * (1 + 1e-9)
    assert way(net) == ["BookKeeping"]


def test_made_up_tokens_are_below_the_size_of_the_table_that_looks_them_up() -> None:
    """The smallest of BERT's three tables has two rows, and all made-up texts were alike."""
    example = {**BATCH, "token_type_ids": PRESENT, "labels": LABELS}
    largest = largest_inputs(bert(), {name: value[:1] for name, value in example.items()})
    assert {name: int(value.max()) for name, value in largest.items()} == {
        **{"input_ids": 89, "attention_mask": 1, "token_type_ids": 1, "labels": 1},
    }


def test_a_step_of_a_network_with_keywords_replays_without_a_violation_and_with_its_mistake() -> None:
    def step_of(divided: bool) -> Any:
        def make() -> Any:
            net = bert(dropout=0.1).eval()

            def step(inputs: dict[str, Tensor], labels: Tensor) -> dict[str, Tensor]:
                noisy = dprepro.noisy_sum(net, {**inputs, "labels": labels}, None, 1.0, 1.0)
                return {name: value / (len(labels) if divided else 8) for name, value in noisy.items()}

            return step

        return make

    inputs = {**BATCH, "attention_mask": PRESENT[:, None, None, :].bool()}
    claims: dict[str, Any] = {"clip": 1.0, "noise_multiplier": 1.0, "expected_batch_size": 8}
    assert dprepro.replay(step_of(False), inputs, LABELS, **claims).violations == ()
    found = dprepro.replay(step_of(True), inputs, LABELS, **claims).violations
    assert "divisor" in {violation.name for violation in found}


@pytest.mark.parametrize("every_step", [False, True])
def test_canaries_of_a_network_with_keywords_show_a_training_without_noise(every_step: bool) -> None:
    words = torch.randint(1, 90, (60, 6), generator=SEEDED)
    inputs = {"input_ids": words, "attention_mask": torch.ones(60, 1, 1, 6).bool()}
    labels = torch.randint(3, (60,), generator=SEEDED)

    def steps(inputs: dict[str, Tensor], labels: Tensor) -> Iterator[nn.Module]:
        net = bert().eval()
        adam = torch.optim.Adam(net.parameters(), lr=0.03)
        yield net
        for _ in range(30):
            sums = dprepro.clipped_sum(net, inputs, labels, 1.0).sums
            for name, value in sums.items():
                net.get_parameter(name).grad = value / len(labels)
            adam.step()
            yield net

    def train(inputs: dict[str, Tensor], labels: Tensor) -> Any:
        assert set(inputs) == {"input_ids", "attention_mask"}
        assert all(len(value) == len(labels) for value in inputs.values())
        return steps(inputs, labels) if every_step else list(steps(inputs, labels))[-1]

    options: dict[str, Any] = {"delta": 1e-5, "epsilon_claimed": 0.5, "say": lambda _: None}
    audited = dprepro.audit_model(train, inputs, labels, canaries=60, **options)
    assert audited.verdict == "wrong"
    assert audited.sees == ("every step" if every_step else "the final model")
    with pytest.raises(dprepro.UserError, match="kind: extreme, with inputs by keyword; allowed"):
        dprepro.audit_model(train, inputs, labels, canaries=60, kind="extreme", **options)


class Mixed(Two):
    """A network by keyword that mixes examples."""

    def forward(self, image: Tensor, *, numbers: Tensor) -> Tensor:
        return super().forward(image - image.mean(0), numbers=numbers)


IMAGES = {"image": torch.rand(8, 1, 6, 6), "numbers": torch.rand(8, 4)}


@pytest.mark.parametrize(
    ("network", "inputs", "labels", "says"),
    [
        (bert, BATCH, None, "labels: None, and the network returns no loss; needed: labels as an"),
        (bert, {**BATCH, "labels": LABELS}, LABELS, "labels: given, and the network returns a loss"),
        (
            bert,
            {"input_ids": WORDS, "attention_mask": PRESENT[:3]},
            LABELS,
            r"\['attention_mask'\]: of shape",
        ),
        (bert, {"input_ids": WORDS.tolist()}, LABELS, r"inputs\['input_ids'\]: list is not allowed"),
        (bert, {"words": WORDS}, LABELS, "the network doesn't take one random input"),
        (bert, {"input_ids": WORDS + 50}, LABELS, "inputs: index out of range in self; allowed: tokens"),
        (bert, {}, LABELS, "inputs: no tensor; needed: one by keyword, or more"),
        (gpt, BATCH, LABELS, r"the network makes \(1, 6, 90\) of 1 examples; needed: \(1, classes\)"),
        (lambda: nn.Linear(6, 3), WORDS.float(), None, "labels: None; allowed: with inputs by keyword"),
        (Mixed, IMAGES, LABELS, "the network mixes examples: in a batch of 2 logits are"),
    ],
)
def test_keywords_that_have_no_clipped_sum_are_a_line(
    network: Callable[[], nn.Module], inputs: Any, labels: Any, says: str
) -> None:
    with pytest.raises(dprepro.UserError, match=says):
        dprepro.clipped_sum(network(), inputs, labels, CLIP)
