"""The one look of the app, light and dark: options for Streamlit, and the little CSS that its options can't say.

Without a choice of the visitor's own the browser's setting decides. Whatever is drawn takes its colours from
`colours()` while it is drawn, never from the module of constants.
"""

from __future__ import annotations

from dataclasses import asdict

import streamlit as st

from pattern_studio.plot.colours import DARK, LIGHT, Colours

_SHARED: dict[str, object] = {
    "font": "sans-serif",
    "headingFont": "sans-serif",
    "codeFont": "monospace",
    "baseFontSize": 15,
    "baseRadius": "6px",
    "buttonRadius": "6px",
    "showWidgetBorder": True,
    "metricValueFontSize": "1.3rem",
    "metricValueFontWeight": 600,
    "headingFontSizes": ["1.5rem", "1.2rem", "1.05rem"],
    "headingFontWeights": [600, 600, 600],
    "paddingTop": "0.9rem",
    "paddingBottom": "1rem",
}


MAX_UPLOAD = 64  # megabytes: Streamlit refuses more in the browser and on the server


def _of(kind: str, c: Colours) -> dict[str, object]:
    """The options of one of the two themes."""
    chosen = {
        "primaryColor": c.accent,
        "backgroundColor": c.background,
        "secondaryBackgroundColor": c.panel,
        "textColor": c.ink,
        "linkColor": c.accent,
        "borderColor": c.line,
    }
    return {f"theme.{kind}.{name}": colour for name, colour in chosen.items()}


OPTIONS: dict[str, object] = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "server.address": "127.0.0.1",
    "server.showEmailPrompt": False,
    "server.fileWatcherType": "none",  # it would look through all of torch for changes at the first run
    "server.maxUploadSize": MAX_UPLOAD,
    **{f"theme.{name}": value for name, value in _SHARED.items()},
    **_of("light", LIGHT),
    **_of("dark", DARK),
}


def colours() -> Colours:
    """What to draw with, in the theme that this visitor's browser shows now."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def css() -> str:
    """The style sheet; its variables `--ps-...` are the fields of Colours, in the theme that is shown."""
    values = "".join(f" --ps-{name.replace('_', '-')}: {value};" for name, value in asdict(colours()).items())
    return f"<style>:root {{{values} }}</style>{CSS}"


CSS = """<style>
.stMainBlockContainer { padding-left: 1.6rem; padding-right: 1.6rem; max-width: 1500px; }
.stMainBlockContainer > div > .stVerticalBlock { gap: 0.55rem; }
.stMain { font-variant-numeric: tabular-nums; }

/* There, but not in the way: what looks for the first thing on a page finds it. */
.st-key-theme-watch { position: absolute; width: 1px; height: 1px; overflow: hidden; }

/* The pattern's text: the largest thing to type in, in the font that errors below it point into. */
[class*="st-key-text-"] input { font-family: "Source Code Pro", ui-monospace, monospace; font-size: 15px;
  letter-spacing: 0; }
.ps-status { font-family: "Source Code Pro", ui-monospace, monospace; font-size: 15px; line-height: 20px;
  min-height: 20px; padding-left: 13px; white-space: pre; overflow: hidden; color: var(--ps-quiet); }
.ps-status.plain { font-family: inherit; font-size: 14px; white-space: normal; }
.ps-status .wrong { color: var(--ps-wrong); font-weight: 600; }
.ps-status .words { font-family: "Source Sans", "Source Sans Pro", system-ui, sans-serif; }

/* Figures: label, number, and the explanation on hover. */
.stMetric { padding: 0; }
.stMetric label { min-height: 0; }
.stMetric label p { font-size: 13px; color: var(--ps-quiet); }
.stMetric [data-testid="stMetricValue"] { line-height: 1.35; padding: 0; }

/* Explanations are everywhere; their signs stay in the background until the pointer is near. */
label [data-testid="stTooltipIcon"] { opacity: 0.3; }
:is(.stMetric, [data-testid="stElementContainer"]):hover label [data-testid="stTooltipIcon"] { opacity: 1; }

/* Nothing here takes long but what says so itself: no greying out at every change. */
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
/* A form that has gone would else stand beside the new one until everything below is drawn. */
.st-key-family-form [data-stale="true"] { animation: ps-leave 0s 0.6s forwards; }
@keyframes ps-leave { to { visibility: hidden; clip-path: inset(100%); } }  /* labels say that they are visible */
.st-key-quality:has(.ps-waits) [data-testid="stMetric"] { opacity: 0.4; }
.st-key-measured-before { opacity: 0.4; }
/* Stop stands right behind the line that says what is measured, in room of its own: nothing moves when it comes. */
.stVerticalBlock[class*="st-key-awaited"] { position: relative; width: fit-content; max-width: 100%; }
.stVerticalBlock[class*="st-key-awaited"]:has(.ps-waits) { padding-right: 2.4rem; }
[class*="st-key-awaited"] [class*="st-key-Stop"] { position: absolute; right: 0; top: -4px; width: auto; }
/* While a pattern is laid out the last map and figures stand faintly, or where there are none frames in their places.
   The line lies over the map: nothing moves when it comes and goes. */
.stColumn:has(> * > * > .st-key-laying-out) { position: relative; }
[data-testid="stLayoutWrapper"]:has(> .st-key-laying-out) { position: absolute; z-index: 5; left: 0; right: 0;
  top: 210px; pointer-events: none; }
.st-key-laying-out { align-items: center; }
:is(.st-key-laying-out, .st-key-laying-above) > * { width: fit-content; max-width: 90%; pointer-events: auto;
  padding: 8px 14px; border: 1px solid var(--ps-line); border-radius: 6px; background: var(--ps-background); }
.stMain:has(.st-key-laying-out .ps-waits) :is(
  .st-key-figures, .st-key-map-tools, [class*="st-key-map-"] > *, .ps-map-words) { opacity: 0.4; }
[data-testid="stLayoutWrapper"]:has(> .st-key-laying-above) { position: absolute; z-index: 5; left: 0; right: 0;
  margin-top: 90px; pointer-events: none; }
[data-testid="stLayoutWrapper"]:has(> .st-key-laying-above .ps-waits) ~ * { opacity: 0.4 !important; }
.st-key-laying-above { align-items: center; }
.ps-frame { height: 538px; border: 1px solid var(--ps-line); border-radius: 4px; }
.stElementContainer:has(> * > .ps-frame):has(~ * > .st-key-map-tools) { display: none; }
[data-testid="stLayoutWrapper"]:has(> .st-key-figures-frame):has(~ * > .st-key-figures) { display: none; }
.ps-seconds { display: inline-block; min-width: 2.4em; }

.ps-map-words { font-size: 13px; line-height: 21px; color: var(--ps-quiet); text-align: center; margin-top: -6px; }
.ps-map-words span { margin: 0 8px; white-space: nowrap; }
.ps-map-words i { display: inline-block; width: 11px; height: 11px; margin-right: 4px; vertical-align: -1px;
  border: 1px solid var(--ps-quiet); }

.ps-group { font-size: 12px; font-weight: 600; letter-spacing: 0.06em; text-transform: uppercase;
  color: var(--ps-quiet); border-top: 1px solid var(--ps-line); padding-top: 7px; margin-top: 2px; line-height: 16px; }
.ps-group.first { border-top: none; padding-top: 0; }
.ps-note { font-size: 13px; line-height: 18px; color: var(--ps-quiet); }
:is([class*="st-key-Stop-"], [class*="st-key-Begin-again-"]) button { min-height: 18px; padding: 0; }
[class*="st-key-performance-direction"] button { min-height: 37px; }  /* as the fields beside it */
.stImage img { border-radius: 0 !important; }
.ps-letter { font-size: 16px; width: 14px; display: inline-block; }
.ps-beside { padding-bottom: 9px; }
.ps-card { height: 56px; overflow: hidden; line-height: 19px; }
.ps-about { height: 54px; overflow: hidden; margin-top: 4px; }
/* What is longer ends in an ellipsis; on hover all of it is told. */
.ps-card .ps-note, .ps-about { display: -webkit-box; -webkit-box-orient: vertical; overflow: hidden; }
.ps-card .ps-note { -webkit-line-clamp: 2; }
.ps-about { -webkit-line-clamp: 3; }
.ps-why { font-size: 13px; background: none; color: var(--ps-quiet); padding: 0; }
.ps-why mark { background: color-mix(in srgb, var(--ps-full) 14%, transparent);
  color: var(--ps-ink); font-weight: 600; }
.ps-rows { width: 100%; font-size: 13px; line-height: 19px; border-collapse: collapse; }
.ps-rows th { text-align: left; font-weight: 400; color: var(--ps-quiet); }
.ps-rows td, .ps-rows th { padding: 1px 10px 1px 0; white-space: nowrap; vertical-align: top; }
.ps-rows td:last-child { white-space: normal; }
.ps-figures td:last-child { white-space: nowrap; }
.ps-figures th { white-space: normal; vertical-align: bottom; line-height: 15px; }
.ps-rows mark { background: color-mix(in srgb, var(--ps-lost) 14%, transparent);
  color: var(--ps-wrong); font-weight: 600; border-radius: 3px; padding: 0 2px; }
.ps-head { width: 100%; display: block; border: 1px solid var(--ps-line); }
:is([class*="st-key-open-head"], [class*="st-key-open-layer"]) button { min-height: 20px; padding: 0; font-size: 12px; }
[class*="-chosen"] .ps-head { border-color: var(--ps-ink); outline: 1px solid var(--ps-ink); }
.ps-wrong { font-size: 14px; line-height: 20px; color: var(--ps-wrong); font-weight: 600; }
</style>"""
