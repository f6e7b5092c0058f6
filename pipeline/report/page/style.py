"""The style sheet of a report: light or dark like the reader's system, for screens of any width and for paper."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #22262b; --quiet: #5c6570; --grid: #d9dce0; --accent: #1f5fa8;
  --shade-0: #123f73; --shade-1: #1f5fa8; --shade-2: #3f82c8; --shade-3: #6ea5dc;
  --shade-4: #9cc3e8; --shade-5: #2b8a80; --shade-6: #5fb3a8; --shade-7: #a5d6cf;
  --keys: #b3541e; --values: #1f5fa8; --lag: #6b4ea8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --card: #1d2126; --ink: #e6e9ed; --quiet: #a3acb7; --grid: #3a4149; --accent: #7db4ee;
    --shade-0: #d3e6fa; --shade-1: #a8cdf3; --shade-2: #7db4ee; --shade-3: #5596da;
    --shade-4: #3876b8; --shade-5: #9be0d6; --shade-6: #5cbcae; --shade-7: #2f8378;
    --keys: #f0985e; --values: #7db4ee; --lag: #b79df0;
    }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 78rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 0; overflow-wrap: anywhere; }
p { margin: .25rem 0 .9rem; max-width: 66rem; }
.quiet, figcaption { color: var(--quiet); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0 0; }
.tiles div, .panel, .wide, .scroll {
  background: var(--card); border: 1px solid var(--grid); border-radius: .5rem; padding: .75rem .9rem;
}
.tiles dt { color: var(--quiet); font-size: .875rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: .75rem; }
.panel, .wide { margin: 0; }
figcaption { font-size: .8125rem; line-height: 1.4; margin-bottom: .25rem; }
figcaption h3 { color: var(--ink); margin: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: "DejaVu Sans", Verdana, system-ui, sans-serif; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: 0 0 .75rem; padding: 0; list-style: none; }
.legend li { font-size: .875rem; color: var(--quiet); }
.legend i { display: inline-block; width: .9em; height: .9em; border-radius: .15em; margin-right: .4em; vertical-align: -.1em; }
.scroll { overflow-x: auto; padding: .25rem .5rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .5rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--grid); }
thead th { border-top: 0; color: var(--quiet); font-weight: 500; }
th:first-child, td.text { text-align: left; }
tbody th { font-weight: 600; white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
tfoot td, tfoot th { font-weight: 600; border-top: 2px solid var(--grid); }
td.share {
  background: linear-gradient(to left, color-mix(in srgb, var(--accent) 22%, transparent) var(--share), transparent 0);
}
svg.narrow { display: none; }
@media (max-width: 48rem) {
  body { padding: 1.25rem .75rem 3rem; }
  .grid { grid-template-columns: 1fr; }
  svg.broad { display: none; }
  svg.narrow { display: block; }
  thead { display: none; }
  table, tbody, tfoot, tr, th, td { display: block; }
  tbody th, tfoot th, td, tfoot td { border: 0; padding: .15rem .25rem; white-space: normal; }
  tr + tr, tfoot tr { border-top: 1px solid var(--grid); }
  tr { padding: .5rem 0; }
  td { display: flex; justify-content: space-between; gap: 1rem; overflow-wrap: anywhere; }
  td::before { content: attr(data-head); color: var(--quiet); font-weight: 400; white-space: nowrap; }
}
details { margin-top: .75rem; }
summary { cursor: pointer; color: var(--accent); }
.warning { border-left: .25rem solid var(--keys); padding-left: .75rem; }
@media print { body { max-width: none; } .panel, .wide { break-inside: avoid; } }
"""
