"""A page under AppTest: started, drawn again, and what stands on it."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.testing.v1 import AppTest


def begun(page: Callable[[], None], **params: str) -> AppTest:
    """A page function as a visitor finds it whose address has these parameters."""
    at = AppTest.from_function(page, default_timeout=120)
    for name, value in params.items():
        at.query_params[name] = value
    return settled(at)


def settled(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception
    return at


def labelled(elements, label: str):
    (found,) = (element for element in elements if element.label == label)
    return found


def html(at: AppTest) -> str:
    return "".join(element.proto.body for element in at.get("html"))


def figures(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in at.metric}
