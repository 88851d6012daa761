#include "pacer/workflow/report/style.h"

namespace pacer::workflow {

std::string_view report_style() {
  return R"css(
:root { color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --text: #1a1d23; --soft: #5c6470; --line: #e3e6eb; --strong-line: #b9c0ca;
  --c1: #2b67d1; --c2: #d9700c; --c3: #1d8a5f; --c4: #8250c8; --c5: #8b94a1; --good: #1d7f53; --bad: #c3352b;
  --shadow: 0 1px 2px rgb(20 25 35 / .06), 0 4px 16px rgb(20 25 35 / .05); }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1216; --card: #181c22; --text: #e7eaee; --soft: #9ba4b1; --line: #2a3038; --strong-line: #4b5462;
  --c1: #6ba3ff; --c2: #f2a14a; --c3: #4fc291; --c4: #b594f5; --c5: #7f8895; --good: #57c795; --bad: #ff7d72;
  --shadow: 0 0 0 1px #242a32; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.015em; text-wrap: balance; }
h2 { font-size: 18px; margin: 36px 0 12px; letter-spacing: -.005em; }
p { margin: 0 0 10px; }
.lead, .hint, figcaption span, .split-name span { color: var(--soft); }
.hint { font-size: 13.5px; }
code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin-top: 20px; }
.tile, .card, figure { background: var(--card); border-radius: 12px; box-shadow: var(--shadow); }
.tile { padding: 14px 16px; }
.tile span { display: block; color: var(--soft); font-size: 13px; }
.tile b { display: block; font-size: 29px; line-height: 1.25; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
.tile b.good { color: var(--good); } .tile b.bad { color: var(--bad); }
.card { padding: 18px 20px; margin-bottom: 14px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 14px; margin-bottom: 14px; }
figure { margin: 0; padding: 16px 16px 10px; min-width: 0; }
figcaption b { display: block; } figcaption span { display: block; font-size: 13px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.grid > figure > svg { margin-top: 6px; }
line { stroke-width: 1; } .grid line, line.grid { stroke: var(--line); } line.axis { stroke: var(--strong-line) !important; }
line.ideal { stroke: var(--strong-line) !important; stroke-dasharray: 4 4; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.curve.faint { stroke-width: 1; opacity: .28; }
.curve.c1 { stroke: var(--c1); } .curve.c2 { stroke: var(--c2); } .curve.c3 { stroke: var(--c3); }
.curve.c4 { stroke: var(--c4); } .curve.c5 { stroke: var(--c5); }
.fill.c1, .dot.c1, .bubble.c1 { fill: var(--c1); } .dot.c2 { fill: var(--c2); } .dot.c3 { fill: var(--c3); }
.dot.c4 { fill: var(--c4); } .dot.c5 { fill: var(--c5); }
.dot { stroke: var(--card); stroke-width: 1.2; } .bubble { fill-opacity: .55; stroke: var(--c1); } .fill { fill-opacity: .85; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin-top: 6px; font-size: 13px; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.legend b { color: var(--text); font-weight: 600; }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
i.c1 { background: var(--c1); } i.c2 { background: var(--c2); } i.c3 { background: var(--c3); } i.c4 { background: var(--c4); }
i.c5 { background: var(--c5); }
i.tick { width: 2px; height: 11px; border-radius: 0; background: var(--text); margin: 0 10px -1px 4px; }
.speedups { display: grid; grid-template-columns: max-content minmax(0, 1fr) max-content; gap: 12px 14px; align-items: center; }
.kind { font-weight: 600; } .tag { display: inline-block; margin-left: 8px; padding: 0 7px; border-radius: 9px; font-size: 11.5px;
  font-weight: 500; color: var(--c1); border: 1px solid var(--c1); line-height: 1.45; vertical-align: 1px; }
.bars { position: relative; padding: 3px 0; } .bar { height: 11px; margin: 2px 0; }
.bar i { display: block; height: 100%; border-radius: 2px 4px 4px 2px; min-width: 2px; }
.one { position: absolute; top: -2px; bottom: -2px; width: 2px; margin-left: -1px; background: var(--text); opacity: .75; z-index: 1; }
.value { text-align: right; font-variant-numeric: tabular-nums; line-height: 1.3; }
.value b { display: block; } .value span { display: block; color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; margin: 0 -4px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th, td { text-align: right; padding: 7px 6px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: 12.5px; vertical-align: bottom; line-height: 1.3; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); } tr:last-child td { border-bottom: 0; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 700; } .none { color: var(--soft); }
.split { margin-bottom: 16px; } .split:last-child { margin-bottom: 0; }
.split-name { display: flex; justify-content: space-between; gap: 12px; font-weight: 600; margin-bottom: 5px; }
.split-name span { font-weight: 400; }
.stack { display: flex; height: 20px; border-radius: 5px; overflow: hidden; gap: 1px; background: var(--card); }
.stack i { display: block; height: 100%; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 5px 16px; margin: 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
pre { margin: 0; overflow-x: auto; white-space: pre; font-size: 12px; }
.missing { border: 1px dashed var(--strong-line); border-radius: 12px; padding: 14px 18px; color: var(--soft); margin-bottom: 14px; }
.missing code { color: var(--text); overflow-wrap: anywhere; }
footer { margin-top: 34px; color: var(--soft); font-size: 13px; }
@media (max-width: 560px) {
  main { padding: 18px 12px 32px; } h1 { font-size: 23px; } h2 { margin-top: 28px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; } .tile { padding: 11px 13px; } .tile b { font-size: 24px; }
  .card { padding: 14px; } figure { padding: 14px 12px 8px; }
  .speedups { grid-template-columns: minmax(0, 1fr) max-content; gap: 4px 12px; }
  .speedups .kind { grid-column: 1 / -1; margin-top: 6px; } dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; } }
@media print {
  :root { --page: #fff; --card: #fff; --text: #000; --soft: #444; --line: #ddd; --strong-line: #999;
    --c1: #2b67d1; --c2: #d9700c; --c3: #1d8a5f; --c4: #8250c8; --c5: #8b94a1; --good: #14613d; --bad: #a3241b; --shadow: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { font-size: 11.5px; } main { max-width: none; padding: 0; } @page { margin: 14mm; }
  .tile, .card, figure { border: 1px solid var(--line); break-inside: avoid; } h2 { break-after: avoid; }
  .tiles { grid-template-columns: repeat(4, 1fr); } .grid { grid-template-columns: 1fr 1fr; }
  .tile b { font-size: 20px; } .tile span, .legend, .hint, figcaption span, .value span, dl { font-size: 10.5px; }
  .scroll { overflow: visible; margin: 0; } table { font-size: 9.5px; } th { font-size: 9px; } th, td { padding: 4px 3px; }
  .card.long { break-inside: auto; } pre { white-space: pre-wrap; } }
)css";
}

}  // namespace pacer::workflow
