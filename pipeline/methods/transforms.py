"""How stored examples become a network's inputs: cropped or padded, and scaled by public statistics."""

from torch import Tensor

from pipeline.methods.augment import centred, crop_flip
from pipeline.methods.base import as_input


class Transforms:
    """Two views of the same examples: as they are at test, and augmented as in training.

    Images are scaled to mean 0 and standard deviation 1 a channel. Both are those of D_pub; the papers' own
    constants are those of the whole training data, private examples included.
    """

    def __init__(self, public: Tensor, side: int | None):
        """``public`` is D_pub as stored, (M, C, H, W) images or (M, T) tokens; ``side`` S or None."""
        self.side = side
        self.scale: tuple[Tensor, Tensor] | None = None
        if public.dim() == 4:
            pixels = as_input(public).transpose(0, 1).flatten(1)
            self.scale = pixels.mean(1)[:, None, None], pixels.std(1).clamp_min(1e-6)[:, None, None]

    def plain(self, stored: Tensor) -> Tensor:
        """(..., C, S, S) images padded equally on all sides to side S; without one as they are."""
        if self.side is not None:
            stored = centred(stored, self.side)
        return self.scaled(as_input(stored))

    def augmented(self, stored: Tensor, draws: Tensor) -> Tensor:
        """(..., C, S, S) random crops of side S, half of them mirrored; ``draws`` as for `crop_flip`."""
        return self.scaled(as_input(crop_flip(stored, draws, self.side)))

    def scaled(self, inputs: Tensor) -> Tensor:
        """(..., C, H, W) floats in [0, 1] scaled by the public images' statistics; tokens as they are."""
        return inputs if self.scale is None else (inputs - self.scale[0]) / self.scale[1]
