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
td:nth-child(1) { text-align: var(--a1); white-space: var(--w1); }
td:nth-child(2) { text-align: var(--a2); white-space: var(--w2); }
td:nth-child(3) { text-align: var(--a3); white-space: var(--w3); }
td:nth-child(4) { text-align: var(--a4); white-space: var(--w4); }
td:nth-child(5) { text-align: var(--a5); white-space: var(--w5); }
td:nth-child(6) { text-align: var(--a6); white-space: var(--w6); }
td:nth-child(7) { text-align: var(--a7); white-space: var(--w7); }
td:nth-child(8) { text-align: var(--a8); white-space: var(--w8); }
td:nth-child(9) { text-align: var(--a9); white-space: var(--w9); }
td:nth-child(10) { text-align: var(--a10); white-space: var(--w10); }
td:nth-child(11) { text-align: var(--a11); white-space: var(--w11); }
td:nth-child(12) { text-align: var(--a12); white-space: var(--w12); }
td:nth-child(13) { text-align: var(--a13); white-space: var(--w13); }
td:nth-child(14) { text-align: var(--a14); white-space: var(--w14); }
td:nth-child(15) { text-align: var(--a15); white-space: var(--w15); }
td:nth-child(16) { text-align: var(--a16); white-space: var(--w16); }
td:nth-child(17) { text-align: var(--a17); white-space: var(--w17); }
td:nth-child(18) { text-align: var(--a18); white-space: var(--w18); }
td:nth-child(19) { text-align: var(--a19); white-space: var(--w19); }
td:nth-child(20) { text-align: var(--a20); white-space: var(--w20); }
td:nth-child(21) { text-align: var(--a21); white-space: var(--w21); }
td:nth-child(22) { text-align: var(--a22); white-space: var(--w22); }
td:nth-child(23) { text-align: var(--a23); white-space: var(--w23); }
td:nth-child(24) { text-align: var(--a24); white-space: var(--w24); }
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
:target { background: #fff3b0; color: #1b1f24; }
.skip { position: absolute; left: -999rem; } .skip:focus { left: 1rem; top: .5rem; background: var(--ground); padding: .4rem; }
@media (max-width: 40rem) { .scroll table, .scroll tbody, .scroll tr, .scroll td { display: block; }
  .scroll thead { display: none; } .scroll table { font-size: .95rem; } .scroll tr { border: 1px solid var(--line); margin: 0 0 .6rem; }
  .scroll td, .scroll td[align="right"], .scroll td:nth-child(n) { border: 0; text-align: left; white-space: normal; padding: .15rem .55rem; }
  .scroll td:empty { display: none; }
  .scroll td::before { color: var(--soft); font-weight: 400; }
  .scroll td:nth-child(1)::before { content: var(--c1) ": "; }
  .scroll td:nth-child(2)::before { content: var(--c2) ": "; }
  .scroll td:nth-child(3)::before { content: var(--c3) ": "; }
  .scroll td:nth-child(4)::before { content: var(--c4) ": "; }
  .scroll td:nth-child(5)::before { content: var(--c5) ": "; }
  .scroll td:nth-child(6)::before { content: var(--c6) ": "; }
  .scroll td:nth-child(7)::before { content: var(--c7) ": "; }
  .scroll td:nth-child(8)::before { content: var(--c8) ": "; }
  .scroll td:nth-child(9)::before { content: var(--c9) ": "; }
  .scroll td:nth-child(10)::before { content: var(--c10) ": "; }
  .scroll td:nth-child(11)::before { content: var(--c11) ": "; }
  .scroll td:nth-child(12)::before { content: var(--c12) ": "; }
  .scroll td:nth-child(13)::before { content: var(--c13) ": "; }
  .scroll td:nth-child(14)::before { content: var(--c14) ": "; }
  .scroll td:nth-child(15)::before { content: var(--c15) ": "; }
  .scroll td:nth-child(16)::before { content: var(--c16) ": "; }
  .scroll td:nth-child(17)::before { content: var(--c17) ": "; }
  .scroll td:nth-child(18)::before { content: var(--c18) ": "; }
  .scroll td:nth-child(19)::before { content: var(--c19) ": "; }
  .scroll td:nth-child(20)::before { content: var(--c20) ": "; }
  .scroll td:nth-child(21)::before { content: var(--c21) ": "; }
  .scroll td:nth-child(22)::before { content: var(--c22) ": "; }
  .scroll td:nth-child(23)::before { content: var(--c23) ": "; }
  .scroll td:nth-child(24)::before { content: var(--c24) ": "; } }
@media print { :root { --ground: #fff; --text: #000; --soft: #333; --line: #999; --band: #fff; --link: #000; }
  body { font-size: 10pt; } nav, .skip { display: none; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } tr, figure { break-inside: avoid; } h2, h3 { break-after: avoid; } }
)";

}  // namespace reports::html
