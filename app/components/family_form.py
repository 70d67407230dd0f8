"""A form per family, which edits the text and reads its numbers from it."""

from __future__ import annotations

import streamlit as st

from ..events import FamilyChosen, FieldSet
from ..families import FAMILIES, LONGEST, family_of
from ..family import Family, Field
from ..session import follow, on
from ..state import State

FREE = "free"


def render(state: State) -> None:
    """Draw the form of the family that the shown text belongs to."""
    found = family_of(state.pattern)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="family-form"):
        _family(found[0] if found else None)
        if found is None:
            st.html('<div class="ps-note ps-beside">No form for this text: edit it above, or choose a family.</div>')
            return
        family, values = found
        _causal(family, values)
        for field in family.fields:
            _field(field, values, state.shown.q_len)


def _family(family: Family | None) -> None:
    names, name = [*FAMILIES, FREE], family.name if family else FREE
    key = follow("family", name)
    st.selectbox(
        "Family",
        names,
        names.index(name),
        key=key,
        format_func=lambda name: "Free form" if name == FREE else FAMILIES[name].title,
        on_change=on(key, _chosen),
        help=family.about if family else "The text matches no form. Choose a family to start from.",
        width=190,
    )


def _chosen(name: str) -> FamilyChosen | None:
    return None if name == FREE else FamilyChosen(name)  # every text is free form; there is nothing to do for it


def _causal(family: Family, values: dict[str, int]) -> None:
    key = follow("field causal", bool(values["causal"]))
    st.toggle(
        "causal",
        bool(values["causal"]),
        key=key,
        on_change=on(key, lambda value: FieldSet("causal", int(value))),
        help="Whether a query is kept from seeing keys after itself.",
    )


def _field(field: Field, values: dict[str, int], q_len: int) -> None:
    value = values[field.name]
    key = follow(f"field {field.name}", value)
    common = {
        "key": key,
        "on_change": on(key, lambda number: FieldSet(field.name, number)),
        "help": field.help,
        "disabled": field.pointless and bool(values["causal"]),
    }
    if field.slide:
        # Long enough for the sequence, and for whatever number the text holds.
        high = max(q_len - 1, value, field.low + 1)
        st.slider(field.label, field.low, high, value, width=250, **common)
    else:
        st.number_input(field.label, field.low, LONGEST, value, step=1, width=130, **common)
