"""The one look of the app: options for Streamlit, and the little CSS that its options can't say."""

from __future__ import annotations

from pattern_studio.plot.colours import BACKGROUND, FULL, INK, LINE, LOST, QUIET

PANEL = "#F3F6F9"  # behind inputs

OPTIONS: dict[str, object] = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "server.address": "127.0.0.1",
    "server.showEmailPrompt": False,
    "server.maxUploadSize": 64,
    "theme.base": "light",
    "theme.primaryColor": FULL,
    "theme.backgroundColor": BACKGROUND,
    "theme.secondaryBackgroundColor": PANEL,
    "theme.textColor": INK,
    "theme.linkColor": FULL,
    "theme.borderColor": LINE,
    "theme.font": "sans-serif",
    "theme.headingFont": "sans-serif",
    "theme.codeFont": "monospace",
    "theme.baseFontSize": 15,
    "theme.baseRadius": "6px",
    "theme.buttonRadius": "6px",
    "theme.showWidgetBorder": True,
    "theme.metricValueFontSize": "1.3rem",
    "theme.metricValueFontWeight": 600,
    "theme.headingFontSizes": ["1.5rem", "1.2rem", "1.05rem"],
    "theme.headingFontWeights": [600, 600, 600],
    "theme.paddingTop": "0.9rem",
    "theme.paddingBottom": "1rem",
}

CSS = f"""<style>
.stMainBlockContainer {{ padding-left: 1.6rem; padding-right: 1.6rem; max-width: 1500px; }}
.stMainBlockContainer > div > .stVerticalBlock {{ gap: 0.55rem; }}
.stMain {{ font-variant-numeric: tabular-nums; }}

/* The pattern's text: the largest thing to type in, in the font that errors below it point into. */
[class*="st-key-text-"] input {{ font-family: "Source Code Pro", ui-monospace, monospace; font-size: 15px;
  letter-spacing: 0; }}
.ps-status {{ font-family: "Source Code Pro", ui-monospace, monospace; font-size: 15px; line-height: 20px;
  min-height: 20px; padding-left: 13px; white-space: pre; overflow: hidden; color: {QUIET}; }}
.ps-status.plain {{ font-family: inherit; font-size: 14px; white-space: normal; }}
.ps-status .wrong {{ color: {LOST}; font-weight: 600; }}
.ps-status .words {{ font-family: "Source Sans", "Source Sans Pro", system-ui, sans-serif; }}

/* Figures: label, number, and the explanation on hover. */
.stMetric {{ padding: 0; }}
.stMetric label {{ min-height: 0; }}
.stMetric label p {{ font-size: 13px; color: {QUIET}; }}
.stMetric [data-testid="stMetricValue"] {{ line-height: 1.35; padding: 0; }}

/* Explanations are everywhere; their signs stay in the background until the pointer is near. */
label [data-testid="stTooltipIcon"] {{ opacity: 0.3; }}
:is(.stMetric, [data-testid="stElementContainer"]):hover label [data-testid="stTooltipIcon"] {{ opacity: 1; }}

/* Nothing here takes long but what says so itself: no greying out at every change. */
[data-stale="true"] {{ opacity: 1 !important; transition: none !important; }}
.st-key-quality-old {{ opacity: 0.4; }}

.ps-group {{ font-size: 12px; font-weight: 600; letter-spacing: 0.06em; text-transform: uppercase; color: {QUIET};
  border-top: 1px solid {LINE}; padding-top: 7px; margin-top: 2px; line-height: 16px; }}
.ps-group.first {{ border-top: none; padding-top: 0; }}
.ps-note {{ font-size: 13px; line-height: 18px; color: {QUIET}; }}
.stImage img {{ border-radius: 0 !important; }}
.ps-letter {{ font-size: 16px; width: 14px; display: inline-block; }}
.ps-beside {{ padding-bottom: 9px; }}
.ps-card {{ height: 56px; overflow: hidden; line-height: 19px; }}
.ps-about {{ height: 54px; overflow: hidden; margin-top: 4px; }}
.ps-why {{ font-size: 13px; background: none; color: {QUIET}; padding: 0; }}
.ps-why mark {{ background: {FULL}22; color: {INK}; font-weight: 600; }}
.ps-rows {{ width: 100%; font-size: 13px; line-height: 19px; border-collapse: collapse; }}
.ps-rows th {{ text-align: left; font-weight: 400; color: {QUIET}; }}
.ps-rows td, .ps-rows th {{ padding: 1px 10px 1px 0; white-space: nowrap; vertical-align: top; }}
.ps-rows td:last-child {{ white-space: normal; }}
.ps-figures td:last-child {{ white-space: nowrap; }}
.ps-figures th {{ white-space: normal; vertical-align: bottom; line-height: 15px; }}
.ps-rows mark {{ background: {LOST}22; color: {LOST}; font-weight: 600; border-radius: 3px; padding: 0 2px; }}
.ps-head {{ width: 100%; display: block; border: 1px solid {LINE}; }}
[class*="st-key-open-head"] button {{ min-height: 20px; padding: 0; font-size: 12px; }}
[class*="-chosen"] .ps-head {{ border-color: {INK}; outline: 1px solid {INK}; }}
.ps-wrong {{ font-size: 14px; line-height: 20px; color: {LOST}; font-weight: 600; }}
</style>"""
