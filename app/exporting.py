"""What the Export page shows, computed beside it: how faithful each target is, one export, the doctor, the matrix."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pattern_studio import StudioError
from pattern_studio.exporters import TARGETS, Diagnosis, Export, Fidelity, check, doctor, export
from pattern_studio.exporters.doctor import Case

from . import compute
from .state import State
from .work import Work

MATRIX = Path(__file__).parent / "static" / "compatibility.json"
LONG = 16_384  # tokens; beyond, some targets take minutes: they are written one by one, when chosen
PROOF = {
    "run": "Tested by running it: every run of the tests gives this file to its consumer, on the CPU.",
    "gpu": "Its consumer needs a GPU: make test-gpu runs it where the package is installed. Elsewhere the tests check "
    "names, shapes, dtypes and counts, and compare its rule with the pattern pair by pair.",
    "contract": "Its consumer is not run by the tests. They check names, shapes, dtypes and counts, and compare its "
    "rule, written out from its source, with the pattern pair by pair.",
}


def is_long(work: Work) -> bool:
    """Whether a problem is too long to be written for every target at once.

    >>> is_long(Work()), is_long(Work(q_len=1, kv_len=100_000))
    (False, True)
    """
    return max(work.q_len, work.kv_len or 0) > LONG


def kv_heads(state: State) -> int:
    """The KV heads that an export is for: as many as query heads unless fewer are said."""
    return min(state.kv_heads or state.shown.heads, state.shown.heads)


def fidelities_job(visitor: str, state: State) -> Future[dict[str, Fidelity]]:
    """How faithfully each target holds what is shown, by target; nothing where the problem is long."""
    key, pattern, long = compute.key_of(state.shown, state.pattern), state.pattern, is_long(state.shown)

    def work() -> dict[str, Fidelity]:
        _, problem, block, layer = key
        return {} if long else {name: check(pattern, problem, block, name, layer=layer) for name in TARGETS}

    return compute.job(f"{visitor} fidelities", ("fidelities", *key), work)


def export_job(visitor: str, state: State, allow: tuple[str, ...]) -> Future[Export | str]:
    """The chosen target's export on its way; where the target can't hold it as exactly as is allowed, the reason."""
    key, pattern, to = compute.key_of(state.shown, state.pattern), state.pattern, state.target

    def work() -> Export | str:
        _, problem, block, layer = key
        try:
            return export(pattern, problem, block, to, layer=layer, allow=allow)
        except StudioError as error:
            return str(error)
        except RecursionError:
            return compute.TOO_DEEP
        except MemoryError:
            return compute.TOO_LARGE

    return compute.job(f"{visitor} export {allow}", ("export", *key, to, allow), work)


def doctor_job(visitor: str, state: State) -> Future[Diagnosis]:
    """The doctor on the chosen target, on its way."""
    key = compute.key_of(state.shown, state.pattern)
    tensors, to, pattern = (state.head_dim, kv_heads(state)), state.target, state.pattern

    def work() -> Diagnosis:
        _, problem, block, layer = key
        try:
            return doctor(pattern, problem, block, to, layer=layer, head_dim=tensors[0], kv_heads=tensors[1])
        except RecursionError:
            raise StudioError(compute.TOO_DEEP) from None
        except MemoryError:
            raise StudioError(compute.TOO_LARGE) from None

    return compute.job(f"{visitor} doctor", ("doctor", *key, to, tensors), work)


def work_of(case: Case, shown: Work) -> Work | None:
    """The work that the doctor's case would be; None where the form can't say it, or it is what is shown already.

    >>> from pattern_studio import Problem, causal
    >>> case = Case(causal, Problem(256, heads=2), (128, 128), "deepspeed", None, 64, None, (0, 1), range(256))
    >>> work_of(case, Work(text="causal", q_len=256, heads=2)).block
    (128, 128)
    """
    problem = case.problem
    if problem.offset != problem.kv_len - problem.q_len:
        return None
    work = replace(
        shown,
        text=str(case.pattern),
        q_len=problem.q_len,
        kv_len=None if problem.kv_len == problem.q_len else problem.kv_len,
        heads=problem.heads,
        block_q=case.block[0],
        block_k=case.block[1],
        docs=", ".join(map(str, problem.docs or ())),
        layer=shown.layer if case.layer is None else case.layer,
    )
    return None if _same(work, shown) else work


def _same(work: Work, shown: Work) -> bool:
    """Whether two works mean the same: texts differ in how they are written, documents in spaces."""
    plain = replace(work, text=shown.text, docs=shown.docs) == shown
    return plain and work.reading.pattern == shown.reading.pattern and work.problem() == shown.problem()


@cache
def matrix() -> dict[str, Any]:
    """The compatibility matrix as `python -m gallery.matrix` wrote it.

    `tokens`, `heads` and `blocks` say what was tried; `presets` holds by name the `text` and the `cells` by target,
    each with `kind` (as Fidelity's), `block`, and `added` (pairs added in per cent of the pattern's) or `reason`.

    >>> matrix()["presets"]["mistral"]["cells"]["natten"]["kind"]
    'exact'
    """
    return json.loads(MATRIX.read_text())
