"""Draws the page anew when the browser changes between light and dark.

Streamlit recolours what is its own at once and tells the server with the visitor's next action only: until then the
maps, plots and style sheet, which are drawn for one theme, would be dark on dark.
"""

from __future__ import annotations

from streamlit.components.v2 import component

KEY = "theme-watch"

# For any component: Streamlit calls its script again whenever its theme changes.
JS = """function watchTheme(parentElement, setTriggerValue) {
  const first = parentElement.querySelector('*');
  const ground = getComputedStyle(first).getPropertyValue('--st-background-color');
  first.dataset.watched = '';  // from here on a change is seen
  if (parentElement.psGround && parentElement.psGround !== ground) setTriggerValue('themed', ground);
  parentElement.psGround = ground;
}
"""
_watch = component(
    "studio_theme_watch",
    html="<i></i>",
    js=JS + "export default ({ parentElement, setTriggerValue }) => watchTheme(parentElement, setTriggerValue);",
)


def render() -> None:
    """Put the watch, which takes no room, on a page that has no tile map: the map watches too."""
    _watch(key=KEY, on_themed_change=drawn_anew)


def drawn_anew() -> None:
    """What a component with `JS` calls as `on_themed_change`; the run that follows asks for the theme."""
