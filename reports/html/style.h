#pragma once
#include <string_view>

namespace reports::html {

/// The only style of the page: light and dark, on paper, on a telephone. Text has a contrast of at
/// least 4.5 : 1, marks of at least 3 : 1, on both grounds.
inline constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --band: #f6f8fa; --link: #0550ae; --good: #116329; --bad: #a40e26; --open: #7d4e00; --none: #57606a; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --text: #e6edf3; --soft: #9ea7b3; --line: #3d444d;
  --band: #161b22; --link: #79b8ff; --good: #56d364; --bad: #ff9492; --open: #e3b341; --none: #9ea7b3; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, ul { margin: .5rem 0; }
ul { padding-left: 1.4rem; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .86em; }
code { background: var(--band); padding: .1em .3em; border-radius: 4px; overflow-wrap: anywhere; }
pre { background: var(--band); padding: .8rem; overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
pre code { padding: 0; background: none; overflow-wrap: normal; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .3rem .55rem; vertical-align: top; text-align: left; }
th { background: var(--band); }
th[align="right"], td[align="right"] { text-align: right; white-space: nowrap; }
thead:has(th:empty:first-child) { display: none; }
tbody tr:nth-child(even) { background: var(--band); }
td code { background: none; padding: 0; overflow-wrap: break-word; }
.status { font-weight: 600; white-space: nowrap; }
.status::before { content: ""; display: inline-block; width: .65em; height: .65em; margin-right: .4em; border-radius: 50%;
  background: currentColor; }
.status.open::before { border-radius: 2px; transform: rotate(45deg); }
.status.bad::before { border-radius: 0; }
.status.none::before { background: none; border: 2px solid currentColor; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); } .none { color: var(--none); }
nav { border: 1px solid var(--line); border-radius: 6px; padding: .5rem 1rem .75rem; margin: 1.25rem 0; }
nav h2 { font-size: 1rem; margin: .25rem 0; border: 0; padding: 0; }
nav ul { columns: 16rem; margin: 0; }
details { border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem; margin: .75rem 0; }
summary { cursor: pointer; color: var(--link); }
figure { margin: 1rem 0; max-width: 54rem; }
figure svg { width: 100%; height: auto; color: var(--text); border: 1px solid var(--line); border-radius: 6px; }
figcaption, .missing { color: var(--soft); font-size: .88rem; }
.id:target, :target { background: #fff3b0; color: #1b1f24; }
.skip { position: absolute; left: -999rem; } .skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .4rem; }
@media (max-width: 40rem) { .scroll table, .scroll tbody, .scroll tr, .scroll td { display: block; }
  .scroll thead { display: none; } .scroll table { font-size: .95rem; } .scroll tr { border: 1px solid var(--line); margin: 0 0 .6rem; }
  .scroll td, .scroll td[align="right"] { border: 0; text-align: left; white-space: normal; padding: .15rem .55rem; }
  .scroll td:empty { display: none; }
  .scroll td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); font-weight: 400; } }
@media print { :root { --ground: #fff; --text: #000; --soft: #333; --line: #999; --band: #fff; --link: #000; }
  body { font-size: 10pt; } nav, .skip { display: none; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } tr, figure { break-inside: avoid; } h2, h3 { break-after: avoid; } }
)";

}  // namespace reports::html
