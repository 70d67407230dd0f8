"""huggingface: Python text that gives a transformers model the pattern, and config fields where they mean the same."""

from __future__ import annotations

from dataclasses import replace

from ..expr import And
from ..patterns.causal import Causal
from ..patterns.chunk import Chunk
from ..patterns.window import Window
from ..problem import Problem
from ._frame import Request, Target, Written, need_tokens
from ._render import about, imports, mask_code, module, sizes

REACH = 2**30  # code in closed form is right for all positions below, whatever the problem's lengths

USAGE = """
Usage, with transformers 5 (without the second registration the model's own mask, and with it causality, would be lost):

    register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="pattern_studio")

The pattern is added to the model's own mask: a decoder stays causal, padding and packed sequences stay apart.
"""

REGISTER = '''def register(name="pattern_studio"):
    """Make the pattern known to transformers under a name, to be given as `attn_implementation`."""
    AttentionInterface.register(name, sdpa_attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


def attention_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, device="cpu", **options):
    """The model's own mask and the pattern, bool [batch, heads or 1, q_length, kv_length]; True takes part."""
    options |= {{"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}}
    own = sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, device=device, **options)
    head = torch.arange({heads}, device=device)[:, None, None]
    row = torch.arange(q_length, device=device)[:, None] + q_offset
    key = torch.arange(kv_length, device=device) + kv_offset
    return own & {mask_mod}(0, head, row, key)
'''

CONFIGURE = '''

def configure(config):
    """Set the fields that mean this pattern in models that read them; no registration is needed then."""
    {set}
    config.layer_types = ["{kind}"] * config.num_hidden_layers
    return config
'''

MORE = """from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
"""


def write(request: Request) -> Written:
    """A module with `register()`, which gives models the pattern through SDPA, and where fields mean it `configure()`.

    The mask function takes absolute positions, so decoding with a cache sees the same pattern; in closed form it is
    right for every length, with tables up to the problem's kv_len (beyond, indexing fails). It is joined to the
    model's own mask, so pairs after the query stay out of decoders, which a note says. `configure` is for `causal &
    window(W - 1, 0)` (sliding_window=W) and `causal & chunk(W)` (attention_chunk_size=W), in models that have such
    layers. One layer's pattern serves all layers.

    Source: masking_utils.py and AttentionInterface of transformers 5.24.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export
    >>> text = export(ps.causal & ps.window(63, 0), ps.Problem(256), to="huggingface").content
    >>> "config.sliding_window = 64" in text
    True
    """
    need_tokens(request.problem)
    problem, asked = request.problem, request.layout
    # transformers asks in absolute positions, from 0 on.
    whole = replace(request, problem=Problem(problem.kv_len, problem.kv_len, 0, problem.heads, problem.docs))
    code, closed = mask_code(whole, whole.layout, REACH)
    text = about(request, asked).replace("nothing but PyTorch", "PyTorch and transformers")
    reach = "every length" if closed and not code.tables else f"positions up to {problem.kv_len}"
    head = [
        f'"""A mask for Hugging Face transformers, of the pattern\n\n{text}\nIt is right for {reach}.\n{USAGE}"""\n',
        imports(code, code.helpers, MORE, cached=True),
        *([] if closed else [sizes(whole, whole.layout)]),
        *code.constants,
    ]
    heads = problem.heads if asked.groups > 1 else 1
    more = REGISTER.format(heads=heads, mask_mod="mask_mod_on(device)" if code.tables else "mask_mod")
    more += _configure(request)
    return Written(module(head, code, code.helpers, more, cached=True), notes=_notes(request))


def _configure(request: Request) -> str:
    """`configure` for a pattern that config fields mean at every length, else nothing."""
    pattern = request.pattern.resolve(0, request.layer)
    parts = set(pattern.children) if isinstance(pattern, And) else set()
    if request.layout.groups > 1 or Causal() not in parts or len(parts) != 2:
        return ""
    (other,) = parts - {Causal()}
    if isinstance(other, Window):
        return CONFIGURE.format(set=f"config.sliding_window = {other.left + 1}", kind="sliding_attention")
    if isinstance(other, Chunk):
        return CONFIGURE.format(set=f"config.attention_chunk_size = {other.size}", kind="chunked_attention")
    return ""


def _notes(request: Request) -> tuple[str, ...]:
    causal = replace(request, pattern=request.pattern & Causal()).layout.pairs
    beyond = request.layout.pairs - causal
    note = f"{beyond:,} pairs lie after the query: a decoder's own causal mask keeps them out, an encoder keeps them"
    return (note,) if beyond else ()


TARGET = Target(
    name="huggingface",
    about="Python text that gives a transformers model the pattern",
    consumer="transformers 5.24, AttentionInterface and AttentionMaskInterface",
    suffix=".py",
    media_type="text/x-python",
    write=write,
    proof="run",
    grouped="own",  # sdpa_attention_forward
)
