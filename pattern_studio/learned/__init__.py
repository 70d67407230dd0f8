"""Patterns that read content: block scores from q and k, learned gates, patterns fitted to a capture.

    scores = SCORES["antidiagonal"](q, k, tiling)      # log mass of each tile, on q's device
    mask = top_k(scores, tiling, density=0.1)          # bool [batch, heads, q_blocks, kv_blocks]
    mask = choose(pooled, q, k, tiling, density=0.1)   # both in one call, on a GPU in two programs
    pattern = to_pattern(mask[0], tiling.block)        # text, to be seen, edited and exported

It needs torch, so `pattern_studio` does not import it.
"""

from ..capture import LossGradients
from .antidiagonal import antidiagonal
from .choose import choose
from .families import FAMILIES
from .fit_blocks import fit_blocks
from .fit_family import fit_family
from .fitted import Fitted, Measured
from .gate import BlockGate
from .live_mass import live_mass
from .loss_gradients import loss_gradients
from .mean_query import mean_query
from .measured_minds import measured_minds
from .narrowed import Narrowed, document_of
from .pooled import pooled
from .predicted_loss import predicted_loss
from .probes import Lines, probe_lines, probes
from .schedule import DensitySchedule
from .select import predicted, top_k, top_p
from .tile_importance import mean_by_distance, tile_importance
from .tiling import Tiling
from .to_pattern import by_head, to_pattern
from .train import Distilled, Quality, calibrate, distill, mass_loss, quality
from .vertical_slash import ChosenLines, vertical_slash

# The registry: one file each, listed here by hand; all take (q, k, tiling, *, scale, lengths).
SCORES = {score.__name__: score for score in (pooled, mean_query, antidiagonal, probes)}

__all__ = [
    "FAMILIES",
    "SCORES",
    "BlockGate",
    "ChosenLines",
    "DensitySchedule",
    "Distilled",
    "Fitted",
    "Lines",
    "LossGradients",
    "Measured",
    "Narrowed",
    "Quality",
    "Tiling",
    "antidiagonal",
    "by_head",
    "calibrate",
    "choose",
    "distill",
    "document_of",
    "fit_blocks",
    "fit_family",
    "live_mass",
    "loss_gradients",
    "mass_loss",
    "mean_by_distance",
    "mean_query",
    "measured_minds",
    "pooled",
    "predicted",
    "predicted_loss",
    "probe_lines",
    "probes",
    "quality",
    "tile_importance",
    "to_pattern",
    "top_k",
    "top_p",
    "vertical_slash",
]
