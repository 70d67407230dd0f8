"""Draws the page anew when the browser changes between light and dark.

Streamlit recolours what is its own at once and tells the server with the visitor's next action only: until then the
maps, plots and style sheet, which are drawn for one theme, would be dark on dark.
"""

from __future__ import annotations

from streamlit.components.v2 import component

KEY = "theme-watch"

# Streamlit calls this again whenever its theme changes.
_watch = component(
    "studio_theme_watch",
    html="<i></i>",
    js="""export default ({ parentElement, setTriggerValue }) => {
  const ground = getComputedStyle(parentElement.querySelector('i')).getPropertyValue('--st-background-color');
  if (parentElement.psGround && parentElement.psGround !== ground) setTriggerValue('changed', ground);
  parentElement.psGround = ground;
}""",
)


def render() -> None:
    """Put the watch, which takes no room, on the page."""
    _watch(key=KEY, on_changed_change=_drawn_anew)


def _drawn_anew() -> None:
    """Nothing more is needed: the run that follows asks for the theme."""
