"""Noise and random streams.

* `mechanisms`: the Gaussian and the Laplace mechanism, the only code that adds noise to private sums.
* `rounded_noise`: noise on a grid, with exactly the probabilities of rounded real numbers.
* `streams`: secret and seeded random streams; samples of batches.
"""
