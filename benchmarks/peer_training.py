"""LeNet-5 trained with DP-SGD by Opacus or JAX-Privacy, without imports from this project.

`benchmarks.peers` runs this script. It reads one JSON object from standard input: ``peer`` ('opacus' or
'jax_privacy'), ``network`` ('lenet5' or 'ln-lenet5'), ``seeds``, ``batch``, ``steps``, ``learning_rate``,
``clip``, ``noise_multiplier``, ``raw`` (folder of MNIST's four files) and ``indices`` (file of the training
examples' positions in the official training part). It writes a line of JSON for each seed.
"""

import functools
import gzip
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, PIXELS, EPSILON = 10, 28, 1e-5  # `EPSILON` of layer norm
VERSIONED = {"opacus": ("opacus", "torch"), "jax_privacy": ("jax_privacy", "jax")}
TrainSeed = Callable[[int], float]  # seed -> test accuracy


def idx(path: Path, header: int) -> np.ndarray:
    """Bytes of a gzipped idx file after a header of ``header`` bytes."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def part(raw: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 1, 28, 28) in [0, 1] and labels (N,) of MNIST's official part 'train' or 't10k'."""
    images = idx(raw / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 1, PIXELS, PIXELS)
    return images.astype(np.float32) / 255, idx(raw / f"{name}-labels-idx1-ubyte.gz", 8).astype(np.int32)


def opacus(settings: dict[str, Any], train: tuple[Any, Any], test: tuple[Any, Any]) -> TrainSeed:
    """Training by Opacus, with its ghost clipping, optimizer and Poisson sampler."""
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch import nn

    torch.set_num_threads(1)
    inputs, labels = (torch.from_numpy(each) for each in train)
    seen, wanted = (torch.from_numpy(each) for each in test)

    def norm(channels: int) -> nn.Module:
        return nn.GroupNorm(1, channels, EPSILON) if settings["network"] == "ln-lenet5" else nn.Identity()

    def run(seed: int) -> float:
        torch.manual_seed(seed)
        lenet = nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), norm(6), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), norm(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), norm(120), nn.ReLU()),
            *(nn.Linear(120, 84), norm(84), nn.ReLU()),
            *(nn.Linear(84, CLASSES), norm(CLASSES)),
        )
        net = GradSampleModuleFastGradientClipping(
            lenet, max_grad_norm=settings["clip"], use_ghost_clipping=True
        )
        optimizer = DPOptimizerFastGradientClipping(
            torch.optim.SGD(net.parameters(), lr=settings["learning_rate"]),
            noise_multiplier=settings["noise_multiplier"],
            max_grad_norm=settings["clip"],
            expected_batch_size=settings["batch"],
        )
        loss = DPLossFastGradientClipping(net, optimizer, nn.CrossEntropyLoss())
        sampler = UniformWithReplacementSampler(
            num_samples=len(labels), sample_rate=settings["batch"] / len(labels), steps=settings["steps"]
        )
        for chosen in sampler:
            optimizer.zero_grad()
            loss(net(inputs[chosen]), labels[chosen].long()).backward()
            optimizer.step()
        with torch.no_grad():
            guesses = torch.cat([lenet(piece).argmax(1) for piece in seen.split(1000)])
        return float((guesses == wanted).double().mean())

    return run


def jax_privacy(settings: dict[str, Any], train: tuple[Any, Any], test: tuple[Any, Any]) -> TrainSeed:
    """Training by JAX-Privacy, with its clipping, noise and Poisson sampler; the network is plain JAX."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import batch_selection, clipped_grad
    from jax_privacy.noise_addition import gaussian_privatizer

    normed = settings["network"] == "ln-lenet5"
    layers = {
        "conv1": (6, 1, 25),
        "conv2": (16, 6, 25),
        "fc1": (120, 400),
        "fc2": (84, 120),
        "fc3": (CLASSES, 84),
    }

    def start(key: Any) -> dict[str, Any]:
        """Initial weights and biases, uniform within 1 / sqrt(fan-in) as in torch."""
        weights = {}
        for name, shape in layers.items():
            key, first, second = jax.random.split(key, 3)
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            draw = functools.partial(jax.random.uniform, minval=-bound, maxval=bound)
            weights[name] = {"weight": draw(first, shape), "bias": draw(second, shape[:1])}
            if normed:
                weights[name] |= {"gain": jnp.ones(shape[0]), "shift": jnp.zeros(shape[0])}
        return weights

    def norm(layer: Any, hidden: Any) -> Any:
        if not normed:
            return hidden
        axes = tuple(range(1, hidden.ndim))
        mean, var = hidden.mean(axes, keepdims=True), hidden.var(axes, keepdims=True)
        per_channel = (-1, *(1,) * (hidden.ndim - 2))
        scaled = (hidden - mean) / jnp.sqrt(var + EPSILON)
        return scaled * layer["gain"].reshape(per_channel) + layer["shift"].reshape(per_channel)

    def conv(layer: Any, images: Any) -> Any:
        """5x5 convolution, ReLU and 2x2 max pooling."""
        side = images.shape[2] - 4
        windows = [images[:, :, i : i + side, j : j + side] for i in range(5) for j in range(5)]
        hidden = jnp.einsum("bckhw,ock->bohw", jnp.stack(windows, 2), layer["weight"])
        hidden = jax.nn.relu(norm(layer, hidden + layer["bias"][:, None, None]))
        return hidden.reshape(*hidden.shape[:2], side // 2, 2, side // 2, 2).max((3, 5))

    def linear(layer: Any, hidden: Any) -> Any:
        return norm(layer, hidden @ layer["weight"].T + layer["bias"])

    def outputs(weights: Any, images: Any) -> Any:
        hidden = conv(weights["conv1"], jnp.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))))
        hidden = conv(weights["conv2"], hidden)
        hidden = hidden.reshape(len(hidden), -1)
        hidden = jax.nn.relu(linear(weights["fc1"], hidden))
        return linear(weights["fc3"], jax.nn.relu(linear(weights["fc2"], hidden)))

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        return -jax.nn.log_softmax(outputs(weights, images))[jnp.arange(len(labels)), labels].mean()

    clipped = clipped_grad(loss, l2_clip_norm=settings["clip"], batch_argnums=(1, 2))
    rate = settings["learning_rate"] / settings["batch"]
    (inputs, labels), (seen, wanted) = train, test
    guess = jax.jit(lambda weights, images: outputs(weights, images).argmax(1))
    stddev = settings["noise_multiplier"] * settings["clip"]

    @jax.jit
    def update(weights: Any, state: Any, images: Any, targets: Any, padding: Any) -> Any:
        sums = clipped(weights, images, targets, is_padding_example=padding)
        # the privatizer's key is part of its state
        noisy, state = gaussian_privatizer(stddev=stddev, prng_key=jax.random.key(0)).update(sums, state)
        return jax.tree.map(lambda weight, summed: weight - rate * summed, weights, noisy), state

    def run(seed: int) -> float:
        initial, noise = jax.random.split(jax.random.key(seed))
        weights = start(initial)
        state = gaussian_privatizer(stddev=stddev, prng_key=noise).init(weights)
        sampling = batch_selection.CyclicPoissonSampling(settings["batch"] / len(labels), settings["steps"])
        for chosen in sampling.batch_iterator(len(labels), rng=seed):
            chosen = batch_selection.pad_to_multiple_of(chosen, 64)  # few shapes to compile
            weights, state = update(weights, state, inputs[chosen], labels[chosen], chosen < 0)
        guesses = [np.asarray(guess(weights, piece)) for piece in np.split(seen, 10)]
        return float((np.concatenate(guesses) == wanted).mean())

    return run


def runs(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train each seed and yield its result."""
    raw = Path(settings["raw"])
    images, labels = part(raw, "train")
    chosen = np.load(settings["indices"])
    trainer = {"opacus": opacus, "jax_privacy": jax_privacy}[settings["peer"]]
    run = trainer(settings, (images[chosen], labels[chosen]), part(raw, "t10k"))
    versions = {name: metadata.version(name) for name in VERSIONED[settings["peer"]]}
    for seed in settings["seeds"]:
        begun, processor = time.monotonic(), time.process_time()
        accuracy = run(seed)
        yield {
            "peer": settings["peer"],
            "network": settings["network"],
            "seed": seed,
            "examples": len(chosen),
            "test_accuracy": accuracy,
            "seconds": round(time.monotonic() - begun, 1),
            "cpu_seconds": round(time.process_time() - processor, 1),
            "versions": versions,
        }


if __name__ == "__main__":
    for result in runs(json.load(sys.stdin)):
        print(json.dumps(result), flush=True)
