"""Sums of clipped per-example gradients.

* `clippers`: ways to compute a network's sums, by all examples at once, `vmap` or a loop, and their tests.
* `gradients`: per-example gradients, their clipping, and the clipping bounds of parts.
* `layer_gradients`: rules of torch's layers for gradients of all examples at once.
* `layers`, `network_state`, `functional`: a network's layers, its state, and its calls.
* `normalization`: batch norm whose statistics are inputs.
"""
