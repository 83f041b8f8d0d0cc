"""The look of the page: system fonts, one quiet accent, light and dark. Nothing is fetched from elsewhere."""

import gradio as gr

_ACCENT = gr.themes.Color(
    c50="#effaf7",
    c100="#d7f2eb",
    c200="#b0e4d8",
    c300="#7fcfbf",
    c400="#4bb3a2",
    c500="#2c9787",
    c600="#1f7a6e",
    c700="#1c6259",
    c800="#1a4f49",
    c900="#19423e",
    c950="#082724",
    name="accent",
)
_NEUTRAL = gr.themes.Color(
    c50="#fafaf8",
    c100="#f4f4f1",
    c200="#e7e7e2",
    c300="#d4d4cd",
    c400="#a3a39b",
    c500="#74746d",
    c600="#54544e",
    c700="#3d3d39",
    c800="#272725",
    c900="#1b1b19",
    c950="#121211",
    name="neutral",
)
_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#1f7a6e"/>'
    '<path d="M9 10h14M9 16h14M9 22h8" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/></svg>'
)
_CLIP = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%23000'"
    " stroke-width='1.9' stroke-linecap='round' stroke-linejoin='round'%3E%3Cpath d='m21 11.5-9 9a6 6 0 0 1-8.5-8.5l9"
    "-9a4 4 0 0 1 5.7 5.7l-9 9a2 2 0 0 1-2.9-2.9l8.4-8.3'/%3E%3C/svg%3E"
)


def page_theme() -> gr.themes.Base:
    """Gradio's base theme in our colours."""
    theme = gr.themes.Base(
        primary_hue=_ACCENT,
        secondary_hue=_ACCENT,
        neutral_hue=_NEUTRAL,
        text_size=gr.themes.sizes.text_md,
        radius_size=gr.themes.sizes.radius_lg,
        font=_SANS,
        font_mono=_MONO,
    )
    return theme.set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        background_fill_primary="white",
        background_fill_primary_dark="*neutral_900",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_800",
        border_color_primary="*neutral_200",
        border_color_primary_dark="*neutral_800",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        input_background_fill="white",
        input_background_fill_dark="*neutral_900",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_500",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
    )


_FILLS = "\n".join(f".progress .fill.w{step} {{ width: {step}%; }}" for step in range(0, 101, 5))

STYLE = (
    f':root {{ --clip: url("{_CLIP}"); }}'
    """
.gradio-container { width: 100% !important; max-width: 1180px !important; margin: 0 auto !important;
  padding: 0 20px 12px !important; }
.gradio-container .main.app { padding: 0 !important; }
.gradio-container > footer { display: none !important; }
#masthead { padding: 18px 2px 2px; }
#masthead .brand { display: flex; align-items: center; gap: 10px; font-size: 18px; font-weight: 650;
  letter-spacing: -.01em; }
#masthead .mark { width: 24px; height: 24px; border-radius: 7px; background: var(--primary-600); display: grid;
  place-items: center; color: #fff; font-size: 14px; line-height: 1; }
#masthead .claim { color: var(--neutral-500); font-weight: 400; font-size: 14px; letter-spacing: 0; }
#masthead .local { margin-left: auto; font-size: 12px; font-weight: 500; color: var(--primary-700);
  background: var(--primary-50); border: 1px solid var(--primary-200); padding: 2px 10px; border-radius: 99px; }
.dark #masthead .local { color: var(--primary-300); background: var(--primary-950); border-color: var(--primary-900); }
#colophon, #colophon p { color: var(--neutral-500); font-size: 12px; text-align: center; }

#conversation { border: 1px solid var(--border-color-primary); border-radius: 14px; }
#conversation .message { font-size: 15px; line-height: 1.55; }
#conversation .bot.message, #conversation .bot-row .message { background: transparent; border: none; box-shadow: none; }
#conversation .user { background: var(--primary-50); border: 1px solid var(--primary-100); border-radius: 14px; }
.dark #conversation .user { background: var(--primary-950); border-color: var(--primary-900); }
#conversation .message-content a { pointer-events: none; color: inherit; text-decoration: none; }
#conversation .thought, #conversation .thought p { font-size: 12.5px; color: var(--neutral-500); margin: 0;
  opacity: 1; }
#conversation .message-buttons-right { display: none; }
#conversation .message-buttons-left .icon-button-wrapper { border: none; box-shadow: none; background: none; }
#conversation .placeholder { text-align: center; padding: 0 12%; }
#add-documents { align-self: center; width: auto; min-width: 180px; flex-grow: 0; }
#question { border-radius: 14px; }
#question label > div, #question .input-container { align-items: center; }
#question textarea { font-size: 15px; border-radius: 14px; padding: 12px 52px 12px 16px; }
#question .submit-button, #question .stop-button { background: var(--primary-600); color: #fff;
  margin-right: 9px; align-self: center; }
#ask { gap: 8px; align-items: flex-end; flex-wrap: nowrap; }
#attach { flex: 0 0 46px; width: 46px; min-width: 46px !important; height: 46px; padding: 0; font-size: 0;
  border-radius: 14px; background: var(--block-background-fill); border: 1px solid var(--border-color-primary);
  color: var(--neutral-600); }
.dark #attach { color: var(--neutral-300); }
#attach:hover, #attach:focus-visible { border-color: var(--primary-500); color: var(--primary-600); }
#attach:disabled { opacity: .5; }
#attach::before { content: ""; width: 20px; height: 20px; background: currentColor; mask: var(--clip) center / contain
  no-repeat; }
#attached { align-items: flex-start; gap: 8px; flex-wrap: nowrap; margin: -6px 0; }
#attached .block { min-width: 0 !important; flex: 1 1 auto; }
#attached p { margin: 0 !important; font-size: 13px; line-height: 1.7; overflow-wrap: anywhere; }
#attached .about span:first-child, #attached .reading { color: var(--neutral-500); }
#attached .chip { display: inline-block; padding: 0 10px; margin: 1px 4px 1px 0; border-radius: 99px; font-weight: 500;
  color: var(--primary-700); background: var(--primary-50); border: 1px solid var(--primary-200); }
.dark #attached .chip { color: var(--primary-300); background: var(--primary-950); border-color: var(--primary-900); }
#attached .failure { color: #b5483a; }
.dark #attached .failure { color: #e59a8d; }
#detach { flex: 0 0 auto; background: transparent; color: var(--neutral-500); border: none; font-size: 12.5px; }
#detach:hover { color: var(--neutral-700); text-decoration: underline; }
.dark #detach:hover { color: var(--neutral-200); }
#choices { gap: 0; }
#choices .block, #into { padding: 8px 12px; }
#choices span, #into span { font-size: 12px; color: var(--neutral-500); }

#evidence h3, #panel-title h3 { font-size: 13px; font-weight: 600; margin: 2px 0 0; color: var(--neutral-600); }
.dark #evidence h3, .dark #panel-title h3 { color: var(--neutral-400); }
.quiet, .quiet p { color: var(--neutral-500); font-size: 13.5px; line-height: 1.5; }
.facts { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 10px 14px; margin-bottom: 10px;
  background: var(--block-background-fill); }
.facts p { margin: 0 !important; }
.facts .timing { font-size: 13px; line-height: 1.5; }
.facts .strategy { font-size: 12px; color: var(--neutral-500); padding-top: 4px; }
.facts .warning { font-size: 12.5px; color: #9a5b00; padding-top: 6px; }
.dark .facts .warning { color: #e6b566; }
.source { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 10px 14px; margin-bottom: 8px;
  background: var(--block-background-fill); }
.source-head { display: flex; align-items: baseline; gap: 8px; font-size: 13px; flex-wrap: wrap; }
.source .number { background: var(--primary-600); color: #fff; border-radius: 6px; padding: 0 6px; font-size: 11.5px;
  font-weight: 600; line-height: 18px; }
.source .name { font-weight: 600; overflow-wrap: anywhere; }
.source .page { color: var(--neutral-500); }
.source .score { margin-left: auto; color: var(--neutral-400); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.source p { font-size: 13px !important; line-height: 1.5 !important; margin: 5px 0 0 !important;
  color: var(--neutral-600);
  overflow-wrap: anywhere; }
.dark .source p { color: var(--neutral-300); }
.source summary { font-size: 12px; color: var(--primary-700); cursor: pointer; margin-top: 4px; }
.dark .source summary { color: var(--primary-300); }
.source details[open] .passage { border-left: 2px solid var(--primary-200); padding-left: 10px; }

.document { display: grid; grid-template-columns: minmax(0, 2.2fr) minmax(0, 2.4fr) minmax(0, .9fr) auto; gap: 14px;
  align-items: center; font-size: 14px; }
.document .title { font-weight: 600; overflow: hidden; text-overflow: ellipsis; }
.document .about, .document .collection { color: var(--neutral-500); font-size: 13px; }
.badge { font-size: 12px; padding: 1px 9px; border-radius: 99px; white-space: nowrap; }
.badge.ready { color: var(--primary-700); background: var(--primary-50); }
.badge.partial { color: #8a5a00; background: #fdf3dd; }
.dark .badge.ready { color: var(--primary-300); background: var(--primary-950); }
.dark .badge.partial { color: #e6b566; background: #33270f; }
.document-row { align-items: center; border-bottom: 1px solid var(--border-color-primary); padding: 8px 4px;
  margin-top: -10px; flex-wrap: nowrap !important; gap: 12px; }
.document-row .block, .document-row .prose { min-width: 0 !important; }
.document-row button { flex: 0 0 auto !important; min-width: 76px !important; background: transparent;
  color: var(--neutral-500); border: 1px solid var(--border-color-primary); }
.document-row button:hover { color: #b5483a; border-color: #e3b7ae; }
#remove-it { background: #b5483a; color: #fff; }
#confirm button { flex: 0 1 140px; min-width: 100px !important; }
#confirm .row { flex-wrap: nowrap; }
#list-head { align-items: center; }
#list-head h3 { margin: 0; font-size: 15px; }
#find textarea, #find input { font-size: 14px; }
#confirm { border: 1px solid #e3b7ae; border-radius: 12px; padding: 12px 14px; background: #fdf4f2; }
.dark #confirm { border-color: #5c2f26; background: #2a1814; }

.progress { border: 1px solid var(--border-color-primary); border-radius: 12px; padding: 12px 14px;
  background: var(--block-background-fill); }
.progress-head { display: flex; gap: 6px; font-size: 14px; }
.progress-head span { margin-left: auto; font-variant-numeric: tabular-nums; color: var(--neutral-500); }
.progress .bar { height: 6px; border-radius: 99px; background: var(--neutral-200); margin: 9px 0 7px;
  overflow: hidden; }
.dark .progress .bar { background: var(--neutral-800); }
.progress .fill { height: 100%; background: var(--primary-500); border-radius: 99px; transition: width .25s ease; }
.progress p { font-size: 12.5px; color: var(--neutral-500); margin: 0; }
.entries { list-style: none !important; padding: 0 !important; margin: 4px 0 !important; font-size: 13.5px; }
.entries summary { cursor: pointer; color: var(--primary-700); }
.dark .entries summary { color: var(--primary-300); }
.entries li { padding: 3px 0; margin: 0 !important; }
.entries li::before { content: "\\2713"; color: var(--primary-600); margin-right: 8px; }
.entries li.failed::before { content: "\\2715"; color: #b5483a; }

@media (min-width: 900px) {
  #sources { max-height: calc(100dvh - 268px); overflow-y: auto; }
  #evidence:has(.facts) #sources { max-height: calc(100dvh - 412px); }
}
@media (max-width: 640px) {
  .gradio-container { padding: 0 10px 10px !important; }
  #masthead .claim { display: none; }
  .document { grid-template-columns: 1fr auto; gap: 2px 10px; }
  .document .about { grid-column: 1; grid-row: 2; }
  .document .badge { grid-column: 2; grid-row: 1; }
  .document .collection { grid-column: 2; grid-row: 2; text-align: right; }
}
""" + _FILLS
)
