"""The doctor: what keeps a target from holding a pattern, and the smallest change after which it does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import StudioError
from ..expr import Pattern
from ..lowering import lower
from ..patterns.causal import Causal
from ..problem import Problem, block_shape, whole
from ._case import Case, refusal
from ._frame import Export, Fidelity
from ._moves import KEEPS, REMEDIES, Change, Move
from ._registry import TARGETS, checked, targets
from ._tiles import causal_tile_pairs

DEAREST = 16  # the total price up to which changes are combined


@dataclass(frozen=True)
class Finding:
    """What does not fit, and the change that mends it; `keeps` is whether the pattern's pairs stay the same."""

    why: str
    change: str
    keeps: bool

    def __str__(self) -> str:
        return f"{self.why}\n  -> {self.change}{'' if self.keeps else ' (this changes what is attended to)'}"


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    `fidelity` is that of the export as it was asked for. `findings` name what does not fit, in the order in which to
    mend it, and `cases` are the exports after all changes: one, or one for each part; both are empty where nothing was
    found to help, and then `reason` says what remains. `elsewhere` are the targets that hold the pattern exactly as it
    is, given where this one does not get there without changing pairs. `notes` say what was not checked.
    """

    asked: Case
    fidelity: Fidelity
    findings: tuple[Finding, ...]
    cases: tuple[Case, ...]
    reason: str = ""
    elsewhere: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether nothing needs to change."""
        return not self.findings and not self.reason

    def export(self) -> tuple[Export, ...]:
        """The exports with all changes made. Raises StudioError where nothing was found to help."""
        if not self.cases:
            raise StudioError(f"{self.asked.to} can't be made to hold this pattern: {self.reason}")
        return tuple(case.export() for case in self.cases)

    def __str__(self) -> str:
        lines = [f"{self.asked.to}: {'fits' if self.fits else 'does not fit as it is'}"]
        lines += [str(finding) for finding in self.findings]
        lines += [f"{self.reason}\n  -> no change was found that makes it fit"] if self.reason else []
        lines += [f"exactly held by: {', '.join(self.elsewhere)}"] if self.elsewhere else []
        return "\n".join([*lines, *self.notes])


def doctor(
    pattern: Pattern,
    problem: Problem,
    block: int | tuple[int, int] = 128,
    to: str = "flex_attention",
    *,
    layer: int | None = None,
    head_dim: int | None = None,
    kv_heads: int | None = None,
) -> Diagnosis:
    """Find what keeps a target from holding a pattern, and the smallest change that makes it fit.

    Other blocks, heads or layers one by one, padded tensors and repeated KV heads leave the pattern's pairs as they
    are and are preferred; only then come changes of the pattern (`causal &`), and last the pairs that a file adds.
    What is advised was tried: `Diagnosis.export()` writes it. It runs the exporter some dozen times.

    Args:
        pattern, problem, block, to, layer: as `export` takes them.
        head_dim: of q, k and v; None does not look at it.
        kv_heads: KV heads, if fewer than query heads; None does not look at it.

    Raises:
        StudioError: an unknown target, KV heads that don't divide the heads, a pattern that the problem doesn't fit.

    >>> import pattern_studio as ps
    >>> print(doctor(ps.parse("causal & chunk(64)"), ps.Problem(1000), 128, "block_sparse_attention", head_dim=80))
    block_sparse_attention: does not fit as it is
    it takes head dimensions 32 or 64 or 128, got 80
      -> pad q, k and v with zeros to head_dim 128 and pass the scale 1/sqrt(80)
    it adds 31,232 pairs
      -> take the cover (allow='cover') and mask the added pairs yourself (this changes what is attended to)
    exactly held by: flex_attention, flex_mask_mod, huggingface, vertical_slash, magi_attention
    """
    checked(pattern, problem, to)
    heads = problem.heads
    if kv_heads is not None and heads % whole("kv_heads", kv_heads, 1, heads):
        raise StudioError(f"expected kv_heads that divide the {heads} query heads, got {kv_heads}; correct one of them")
    dim = None if head_dim is None else whole("head_dim", head_dim, 1, 2**15)
    own = range(problem.q_len)
    case = Case(pattern, problem, block_shape(block), to, layer, dim, kv_heads, tuple(range(heads)), own)
    mended = _mend(case)
    if mended and any(refusal(replace(one, each_head=True))[0] for one in mended.cases):
        case = replace(case, each_head=True)  # a matter of how many heads there are
        mended = _mend(case)
    about, why = refusal(case)
    fidelity = Fidelity("unsupported", reason=why) if about == "layer" else case.fidelity()
    if mended is None:
        return Diagnosis(case, fidelity, (), (), why, _elsewhere(case), _notes(case))
    elsewhere = () if all(finding.keeps for finding in mended.findings) else _elsewhere(case)
    return Diagnosis(case, fidelity, mended.findings, mended.cases, "", elsewhere, _notes(case))


def _mend(case: Case) -> Mended | None:
    """The cheapest changes that make it fit: the price that may be paid rises until something does."""
    search = _Search()
    for price in range(DEAREST + 1):
        if found := search.within(case, price, frozenset()):
            return found
    return None


@dataclass(frozen=True)
class Mended:
    """What was found: the changes, the cases after them, and how many pairs more or less those attend to."""

    findings: tuple[Finding, ...] = ()
    cases: tuple[Case, ...] = ()
    pairs: int = 0


class _Search:
    """Looks for changes, each kind at most once in a row of them; what was seen is not looked at again."""

    def __init__(self) -> None:
        self.refusals: dict[Case, tuple[str, str]] = {}
        self.changes: dict[tuple[Case, Move], tuple[Change, ...]] = {}
        self.vain: dict[tuple[Case, frozenset[Move]], int] = {}

    def refusal(self, case: Case) -> tuple[str, str]:
        """The case's refusal, worked out once."""
        if case not in self.refusals:
            self.refusals[case] = refusal(case)
        return self.refusals[case]

    def within(self, case: Case, price: int, done: frozenset[Move]) -> Mended | None:
        """The best changes for at most this price, or None."""
        about, _ = self.refusal(case)
        if not about:
            return Mended((), (case,))
        if self.vain.get((case, done), -1) >= price:
            return None
        best = None
        for move in REMEDIES[about]:
            if move in done:
                continue
            if (case, move) not in self.changes:
                self.changes[case, move] = tuple(move(case))
            for change in self.changes[case, move]:
                if change.price <= price and self._moves_on(case, change):
                    found = self._after(case, change, price, done | {move})
                    if found and (best is None or found.pairs < best.pairs):
                        best = found
        if best is None:
            self.vain[case, done] = price
        return best

    def _moves_on(self, case: Case, change: Change) -> bool:
        """Whether something else is wrong after the change: then it may be a step, else it is none."""
        return len(change.cases) != 1 or self.refusal(change.cases[0]) != self.refusal(case)

    def _after(self, case: Case, change: Change, price: int, done: frozenset[Move]) -> Mended | None:
        parts = []
        for one in change.cases:
            part = self.within(one, price - change.price, done)
            if part is None:
                return None
            parts.append(part)
        finding = Finding(_told(case, *self.refusal(case)), change.words, change.price <= KEEPS)
        more = dict.fromkeys(finding for part in parts for finding in part.findings)
        pairs = change.pairs + sum(part.pairs for part in parts)
        return Mended((finding, *more), tuple(one for part in parts for one in part.cases), pairs)


def _told(case: Case, about: str, why: str) -> str:
    """Why it does not fit; of a causal pattern's cover also how much of it lets queries see later keys."""
    if about != "cover" or lower(case.pattern - Causal(), case.problem, block=case.block, layer=case.layer).pairs:
        return why
    layout = lower(case.pattern, case.problem, block=case.block, layer=case.layer)
    later = layout.tile_pairs - causal_tile_pairs(layout)
    if layout.tile_pairs - layout.pairs != case.fidelity().pairs or not later:
        return why
    return f"{why}; {later:,} of them let queries see later keys, since nothing cuts diagonal blocks"


def _elsewhere(case: Case) -> tuple[str, ...]:
    """The other libraries' targets that hold the pattern exactly as it is."""
    if refusal(replace(case, to="npz"))[0] == "layer":
        return ()
    own = ("json", "npz", "safetensors")
    others = [name for name in targets() if name != case.to and name not in own]
    return tuple(name for name in others if replace(case, to=name).fidelity().kind == "exact")


def _notes(case: Case) -> tuple[str, ...]:
    target = TARGETS[case.to]
    out = []
    if case.head_dim is not None and target.head_dims is None:
        out.append(f"head_dim {case.head_dim} was not checked: no rule of {case.to} was read")
    if case.kv_heads is not None and target.grouped is None and case.kv_heads != case.problem.heads:
        out.append(f"{case.kv_heads} KV heads were not checked: no rule of {case.to} was read")
    return tuple(out)
