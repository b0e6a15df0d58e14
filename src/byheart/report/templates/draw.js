// Drawing for the pages: numbers as people read them, and pictures as SVG. Numbers are fractions {n, d} of integers of any
// length; positions are computed from them exactly and only then become pixels.
const whole = (n) => ({ n: BigInt(n), d: 1n });
const minus = (a, b) => ({ n: a.n * b.d - b.n * a.d, d: a.d * b.d });
const plus = (a, b) => ({ n: a.n * b.d + b.n * a.d, d: a.d * b.d });
const times2 = (a, b) => ({ n: a.n * b.n, d: a.d * b.d });
const compare = (a, b) => { const x = a.n * b.d - b.n * a.d; return x < 0n ? -1 : x > 0n ? 1 : 0; };
const lowest = (x) => { let [a, b] = [x.n < 0n ? -x.n : x.n, x.d]; while (b) [a, b] = [b, a % b]; return a > 1n ? { n: x.n / a, d: x.d / a } : x; };
const smallest = (list) => list.reduce((a, b) => (compare(a, b) <= 0 ? a : b));
const largest = (list) => list.reduce((a, b) => (compare(a, b) >= 0 ? a : b));
// The position of v between low (0) and high (1).
const shareOf = (v, low, high) => {
  const top = minus(v, low), span = minus(high, low);
  if (!span.n) return 0.5;
  return Number((top.n * span.d * 1000000n) / (span.n * top.d)) / 1e6;
};

// Plain text of a number: whole numbers with separators, halves and quarters as decimals, other fractions as fractions.
// `full` keeps every digit; without it, long numbers keep their first and last digits and the number of digits.
function numberText(x, full = false) {
  const { n, d } = lowest(x), sign = n < 0n ? "−" : "", size = n < 0n ? -n : n;
  const grouped = (digits) => (digits.length > 4 ? digits.replace(/\B(?=(\d{3})+$)/g, ",") : digits);
  const shown = (digits) => (full || digits.length <= 12 ? grouped(digits) : digits.slice(0, 4) + "…" + digits.slice(-4) + " (" + digits.length + " digits)");
  if (d === 1n) return sign + shown(size.toString());
  const halvings = d.toString(2).length - 1;
  if (d === 1n << BigInt(halvings) && halvings <= (full ? 60 : 4)) {
    const decimals = ((size % d) * 10n ** BigInt(halvings) / d).toString().padStart(halvings, "0");
    return sign + shown((size / d).toString()) + "." + decimals;
  }
  if (full || (size.toString().length <= 7 && d.toString().length <= 7)) return sign + shown(size.toString()) + "/" + shown(d.toString());
  const digits = (size * 1000000n) / d;
  return "≈ " + sign + shown((digits / 1000000n).toString()) + "." + (digits % 1000000n).toString().padStart(6, "0").replace(/0+$/, "").padEnd(1, "0");
}

// A number inside a picture, where space is scarce: long ones rounded, as 3.21·10³³ (their title has every digit).
function roughText(x) {
  const text = numberText(x);
  if (!/[…≈]/.test(text) && text.length <= 11) return text;
  const { n, d } = lowest(x), size = (n < 0n ? -n : n) / d, digits = size.toString();
  if (digits.length <= 9) return (n < 0n ? "−" : "") + digits.replace(/\B(?=(\d{3})+$)/g, ",") + "…";
  return `${n < 0n ? "−" : ""}${digits[0]}.${digits.slice(1, 3)}·10${[...String(digits.length - 1)].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("")}`;
}

const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const SVG = (() => { const parsed = document.createElement("template"); parsed.innerHTML = "<svg></svg>"; return parsed.content.firstChild.namespaceURI; })();
const svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, typeof value === "number" ? Math.round(value * 100) / 100 : value);
  node.append(...children);
  return node;
};
// A number on the page; a shortened one is a button that shows every digit.
function number(x) {
  const short = numberText(x), full = numberText(x, true);
  if (!/[…≈]/.test(short)) return element("span", { class: "num", title: short === full ? null : full }, short);
  const node = element("button", { class: "num", type: "button", title: full.length > 400 ? full.slice(0, 400) + "…" : full, "aria-expanded": "false" }, short);
  node.addEventListener("click", (event) => {
    event.stopPropagation();
    const open = node.getAttribute("aria-expanded") === "false";
    node.setAttribute("aria-expanded", String(open));
    node.textContent = open ? full : short;
  });
  return node;
}

// An equation whose terms have their meaning underneath: ["=", {value, note}, …].
function equation(terms) {
  const row = element("div", { class: "equation" });
  for (const term of terms) {
    if (typeof term === "string") { row.append(element("span", { class: "sign" }, term)); continue; }
    const value = term.value instanceof Node ? term.value : typeof term.value === "string" ? element("span", { class: "num" }, term.value) : number(term.value);
    row.append(element("span", { class: "term" + (term.strong ? " strong" : "") }, value, element("small", {}, term.note || "")));
  }
  return row;
}

let clips = 0;
const clipId = () => "clip" + clips++;
const COLOURS = 8;
const colour = (k) => "c" + (k % COLOURS);
const cutText = (text, most) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
const picture = (width, height, label, ...children) => svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "drawn" }, ...children);
const text = (x, y, words, more = {}) => svg("text", { x, y, ...more }, words);

// Words beside points, pushed apart: [{x, words}] -> lanes, so that no two cover each other.
function lanesOf(marks, most, size = 8) {
  const ends = [];
  return marks.map(({ x, words }) => {
    const half = (Math.min(14, [...words].length) * size) / 2 + 3;
    let lane = ends.findIndex((end) => end < x - half);
    if (lane < 0) lane = ends.length < most ? ends.length : -1;
    if (lane >= 0) ends[lane] = x + half;
    return lane;
  });
}

const named = (marks) => (marks.length > 18 ? marks.filter((m) => m.me) : marks); // more names than that are unreadable
const inFrame = (x, words, width) => { const half = 4.5 * Math.min(14, [...words].length); return Math.max(half, Math.min(width - half, x)); };

// Points on one line: marks {v, words, kind (a colour's number), me, title}.
function axisMarks(marks, x, y, side, most, width) {
  const sorted = [...named(marks)].sort((a, b) => compare(a.v, b.v)), lanes = lanesOf(sorted.map((m) => ({ x: x(m.v), words: m.words })), most);
  const others = [...marks.filter((m) => !sorted.includes(m)).map((m) => ({ m, lane: -1 })), ...sorted.map((m, k) => ({ m, lane: lanes[k] }))].sort((a, b) => Number(Boolean(a.m.me)) - Number(Boolean(b.m.me)));
  return others.map(({ m, lane }) => svg("g", { class: "mark " + colour(m.kind) + (m.me ? " me" : "") },
    svg("title", {}, (m.title || m.words) + ": " + numberText(m.v)),
    svg("circle", { cx: x(m.v), cy: y, r: m.me ? 7 : 4.5 }),
    ...(lane >= 0 || m.me ? [text(inFrame(x(m.v), m.words, width), y + side * (16 + 14 * Math.max(0, lane)) + (side > 0 ? 4 : 0), cutText(m.words, 14), { "text-anchor": "middle" })] : [])));
}
const linesNeeded = (marks, x, most) => 1 + Math.max(0, ...lanesOf([...named(marks)].sort((a, b) => compare(a.v, b.v)).map((m) => ({ x: x(m.v), words: m.words })), most));

// A dot that runs along a path once, for those who like motion.
const runner = (path, after = 0) => svg("circle", { class: "runner", r: 6 }, svg("animateMotion", { dur: "0.8s", begin: after + "s", fill: "freeze", path, calcMode: "spline", keyTimes: "0;1", keySplines: "0.4 0 0.3 1" }));

// A number line with its marks.
function lineFigure(width, marks, { label, low, high, ticks = [] }) {
  const left = 16, right = width - 16, x = (v) => left + shareOf(v, low, high) * (right - left), lanes = linesNeeded(marks, x, 5), y = 22 + 14 * lanes;
  return picture(width, y + 34, label,
    svg("line", { class: "axis", x1: left - 8, x2: right + 8, y1: y, y2: y }),
    ...[low, ...ticks, high].map((v, k, all) => svg("g", {}, svg("line", { class: "axis", x1: x(v), x2: x(v), y1: y - 5, y2: y + 5 }), text(x(v), y + 26, roughText(v), { class: "tick", "text-anchor": k === 0 ? "start" : k === all.length - 1 ? "end" : "middle" }))),
    ...axisMarks(marks, x, y, -1, 5, width));
}

// One fold: the strip before it on top, after it at the bottom; the part beyond the crease is turned over.
// marks: {before, after, words, kind, me, turned}.
function foldFigure(width, marks, { label, crease, low, high, cells = [] }) {
  const left = 16, right = width - 16, x = (v) => left + Math.max(-0.02, Math.min(1.02, shareOf(v, low, high))) * (right - left);
  const above = marks.map((m) => ({ ...m, v: m.before })), below = marks.map((m) => ({ ...m, v: m.after }));
  const lanes = linesNeeded(above, x, 4), under = linesNeeded(below, x, 4), y1 = 24 + 14 * lanes, y2 = y1 + 104, height = y2 + 40 + 14 * under;
  const flap = crease && compare(crease, high) < 0 ? [
    svg("rect", { class: "flap", x: x(crease), y: y1 - 9, width: Math.max(0, x(high) - x(crease)), height: 18 }),
    svg("path", { class: "turn", d: `M ${x(high)} ${y1 + 9} Q ${x(crease)} ${y1 + 78} ${Math.max(left, 2 * x(crease) - x(high))} ${y2 - 9}` }),
    svg("line", { class: "crease", x1: x(crease), x2: x(crease), y1: y1 - 14, y2: y2 + 9 }),
    text(x(crease) + 5, y1 + 26, "crease " + roughText(crease), x(crease) > width - 110 ? { class: "tick", "text-anchor": "end", x: x(crease) - 5 } : { class: "tick" }),
  ] : [];
  const paths = [...marks].sort((a, b) => Number(Boolean(a.me)) - Number(Boolean(b.me))).map((m) => svg("path", {
    class: "way " + colour(m.kind) + (m.me ? " me" : "") + (m.turned ? " turned" : ""),
    d: m.turned ? `M ${x(m.before)} ${y1} C ${x(m.before)} ${y1 + 70}, ${x(m.after)} ${y1 + 30}, ${x(m.after)} ${y2}` : `M ${x(m.before)} ${y1} L ${x(m.after)} ${y2}`,
  }));
  const mine = paths.findLast((path) => path.classList.contains("me"));
  const kept = crease && compare(crease, high) < 0 ? x(crease) : right;
  return picture(width, height, label,
    svg("rect", { class: "strip", x: left, y: y1 - 9, width: right - left, height: 18, rx: 3 }),
    svg("rect", { class: "strip", x: left, y: y2 - 9, width: Math.max(0, kept - left), height: 18, rx: 3 }),
    ...cells.map((cell, k) => svg("rect", { class: "cell " + colour(cell.kind), x: x(cell.low), y: y2 - 9, width: Math.max(0, x(cell.high) - x(cell.low)), height: 18 }, svg("title", {}, cell.words))),
    ...cells.filter((cell) => x(cell.high) - x(cell.low) > 7 * Math.min(10, [...cell.words].length)).map((cell) => text((x(cell.low) + x(cell.high)) / 2, y2 + 32 + 14 * under, cutText(cell.words, 12), { class: "name " + colour(cell.kind), "text-anchor": "middle" })),
    ...flap, ...paths,
    text(left, y1 - 14 - 14 * lanes, "before", { class: "tick" }), ...(cells.length ? [] : [text(left, y2 + 32 + 14 * under, roughText(low), { class: "tick" })]), text(right, y2 + 32 + 14 * under, roughText(high), { class: "tick", "text-anchor": "end" }),
    ...axisMarks(above, x, y1, -1, 4, width), ...axisMarks(below, x, y2, 1, 4, width), ...(mine ? [runner(mine.getAttribute("d"))] : []));
}

// A bent line over the ids: bands are groups, marks {x, y, words, kind, me} are on it. `corners`: points of the line.
function bendFigure(width, marks, corners, { label, bands, across, upwards }) {
  const left = 14, right = width - 14, top = 30, bottom = 250, xs = [...corners.map((c) => c.x), ...marks.map((m) => m.x)], ys = marks.map((m) => m.y);
  const lowX = smallest(xs), highX = largest(xs), lowY = smallest([whole(0), ...ys]), highY = largest(ys.length ? ys : corners.map((c) => c.y));
  const x = (v) => left + 10 + shareOf(v, lowX, highX) * (right - left - 20);
  const y = (v) => Math.max(-9e4, Math.min(9e4, bottom - shareOf(v, lowY, highY) * (bottom - top))); // far corners are cut off by the frame
  const frame = clipId();
  const me = marks.find((m) => m.me), shown = bands.length <= 40 ? bands : [];
  // A label is above its point, or below where it would cover one that is placed already; the row in view comes first.
  const placed = [], shift = new Map();
  for (const m of [...marks].sort((a, b) => Number(Boolean(b.me)) - Number(Boolean(a.me)))) {
    const half = 4.5 * Math.min(12, [...m.words].length), at = (dy) => ({ x: x(m.x), y: y(m.y) + dy, half }), free = (box) => placed.every((one) => Math.abs(one.x - box.x) >= one.half + box.half || Math.abs(one.y - box.y) >= 14);
    const tries = y(m.y) < top + 14 ? [20, -10] : [-10, 20], dy = tries.find((one) => free(at(one))) ?? tries[0];
    placed.push(at(dy));
    shift.set(m, dy);
  }
  return picture(width, bottom + 46, label,
    ...shown.map((band, k) => svg("rect", { class: "band" + (band.me ? " me" : ""), x: x(band.low) - 7, y: top - 16, width: Math.max(14, x(band.high) - x(band.low) + 14), height: bottom - top + 26, rx: 5 })),
    ...shown.filter(() => bands.length <= 14).map((band, k) => text((x(band.low) + x(band.high)) / 2, bottom + 24, band.words, { class: "tick" + (band.me ? " me" : ""), "text-anchor": "middle" })),
    svg("clipPath", { id: frame }, svg("rect", { x: 0, y: top - 24, width, height: bottom - top + 38 })),
    svg("polyline", { class: "bent", "clip-path": `url(#${frame})`, points: corners.map((c) => `${x(c.x).toFixed(1)},${y(c.y).toFixed(1)}`).join(" ") }),
    ...(me ? [svg("path", { class: "guide", d: `M ${x(me.x)} ${bottom + 8} L ${x(me.x)} ${y(me.y)} L ${left} ${y(me.y)}` }), text(left + 2, y(me.y) - 5, upwards + " " + roughText(me.y), { class: "tick me" }), runner(`M ${x(me.x)} ${bottom + 8} L ${x(me.x)} ${y(me.y)} L ${left} ${y(me.y)}`)] : []),
    text(right, bottom + 41, across, { class: "tick", "text-anchor": "end" }),
    ...[...marks].sort((a, b) => Number(Boolean(a.me)) - Number(Boolean(b.me))).map((m) => svg("g", { class: "mark " + colour(m.kind) + (m.me ? " me" : "") },
      svg("title", {}, `${m.words}: ${numberText(m.x)} → ${numberText(m.y)}`), svg("circle", { cx: x(m.x), cy: y(m.y), r: m.me ? 7 : 4.5 }),
      ...(marks.length <= 14 || m.me ? [text(x(m.x), y(m.y) + shift.get(m), cutText(m.words, 12), { "text-anchor": "middle" })] : []))));
}

// Attention onto one token: an arc from every token it attends to, as thick as its weight, and the sum as a stacked bar.
function attentionFigure(width, tokens, to, { label, weight }) {
  const count = tokens.length, step = Math.min(92, (width - 24) / count), left = (width - step * count) / 2, x = (k) => left + step * (k + 0.5), small = step < 42;
  const top = to < 0 ? 12 : 92, box = Math.min(step - 6, 64), shares = tokens.map((t) => t.adds);
  const sum = shares.reduce((a, b) => lowest(plus(a, b)), whole(0)), bar = top + 92;
  const arcs = tokens.map((_, k) => (k === to ? `M ${x(k) - 9} ${top - 2} C ${x(k) - 26} ${top - 46}, ${x(k) + 26} ${top - 46}, ${x(k) + 9} ${top - 2}` : `M ${x(k)} ${top - 2} C ${x(k)} ${top - 40 - (34 * Math.abs(to - k)) / count}, ${x(to)} ${top - 40 - (34 * Math.abs(to - k)) / count}, ${x(to)} ${top - 2}`));
  const parts = [];
  let at = whole(0);
  tokens.forEach((t, k) => {
    if (!shares[k].n) return;
    const from = shareOf(at, whole(0), sum), until = shareOf(plus(at, shares[k]), whole(0), sum);
    at = plus(at, shares[k]);
    const [a, b] = [12 + Math.min(from, until) * (width - 24), 12 + Math.max(from, until) * (width - 24)];
    parts.push(svg("rect", { class: "part p" + (k % 4), x: a, y: bar, width: Math.max(1, b - a - 1), height: 26 }, svg("title", {}, `${t.words} adds ${numberText(shares[k])}`)));
    if (b - a > 26) parts.push(text((a + b) / 2, bar + 18, b - a > 12 + 8 * roughText(shares[k]).length ? roughText(shares[k]) : "…", { class: "inbar", "text-anchor": "middle" }));
  });
  return picture(width, bar + 52, label,
    ...arcs.map((d, k) => (tokens[k].attended ? svg("path", { class: "arc" + (k === to ? " me" : ""), d }) : "")), ...arcs.flatMap((d, k) => (tokens[k].attended ? [runner(d)] : [])),
    ...(to >= 0 ? [text(x(to), 14, small ? weight : "weight " + weight + " each", { class: "tick me", "text-anchor": x(to) > width - 60 ? "end" : "middle" })] : []),
    ...tokens.flatMap((t, k) => [
      svg("rect", { class: "tile" + (k === to ? " me" : ""), x: x(k) - box / 2, y: top, width: box, height: 52, rx: 6 }),
      text(x(k), top + 21, cutText(t.words, small ? 2 : 6), { class: "letter", "text-anchor": "middle" }),
      text(x(k), top + 42, small && roughText(t.value).length > 3 ? "" : roughText(t.value), { class: "tick", "text-anchor": "middle" }),
    ]),
    text(12, bar - 8, "the sum, drawn: each token's share", { class: "tick" }), ...parts,
    text(12, bar + 44, "= " + roughText(sum), { class: "tick me" }));
}

// Bars for the logits; the longest is the answer.
function barsFigure(width, bars, { label }) {
  const low = smallest([whole(0), ...bars.map((b) => b.v)]), high = largest([whole(0), ...bars.map((b) => b.v)]), name = Math.min(150, Math.max(60, 8 * Math.max(...bars.map((b) => Math.min(16, [...b.words].length))) + 12));
  const room = 7.5 * Math.max(...bars.map((b) => roughText(b.v).length + (b.me ? 9 : 0))), left = name + 8, right = Math.max(left + 40, width - room - 10), x = (v) => left + shareOf(v, low, high) * (right - left), step = bars.length > 12 ? 22 : 30;
  return picture(width, step * bars.length + 10, label,
    ...bars.flatMap((b, k) => {
      const [a, c] = [x(whole(0)), x(b.v)].sort((p, q) => p - q), y = 6 + step * k;
      return [
        text(name, y + step / 2 + 1, cutText(b.words, 16), { "text-anchor": "end", class: "name " + colour(b.kind) + (b.me ? " me" : "") }),
        svg("rect", { class: "logit " + colour(b.kind) + (b.me ? " me" : ""), x: a, y: y + 2, width: Math.max(2, c - a), height: step - 10, rx: 3 }, svg("title", {}, `${b.words}: ${numberText(b.v, true)}`)),
        text(c + 6, y + step / 2 + 1, roughText(b.v) + (b.me ? "  largest" : ""), { class: "tick" + (b.me ? " me" : "") }),
      ];
    }),
    svg("line", { class: "axis", x1: x(whole(0)), x2: x(whole(0)), y1: 2, y2: step * bars.length + 4 }));
}

// Curves over N: series [{name, kind, points: [[N, value]], dots}], drawn up to the chosen N; logarithmic on request.
function curvesFigure(width, series, { label, N, logarithmic, unit }) {
  const height = Math.max(260, Math.min(380, width * 0.5)), left = 54, right = width - 14, top = 28, bottom = height - 34;
  const fits = (p) => p[0] <= N * (logarithmic ? 1 : 1.0001), all = series.flatMap((s) => [...(s.points || []), ...(s.dots || [])]).filter(fits);
  const highest = Math.max(10, ...(logarithmic ? all : all.filter((_, k) => true)).map((p) => p[1]).filter((v) => logarithmic || v <= unit));
  const [x, y] = logarithmic
    ? [(n) => left + (Math.log(n) / Math.log(Math.max(2, N))) * (right - left), (v) => bottom - (Math.log(Math.max(1, v)) / Math.log(highest)) * (bottom - top)]
    : [(n) => left + (n / N) * (right - left), (v) => bottom - (v / highest) * (bottom - top)];
  const ticks = (most, log) => (log ? Array.from({ length: 1 + Math.floor(Math.log10(most)) }, (_, k) => 10 ** k) : [0.25, 0.5, 0.75, 1].map((f) => Math.round(most * f)));
  const grid = [
    ...ticks(highest, logarithmic).map((v) => svg("g", {}, svg("line", { class: "grid", x1: left, x2: right, y1: y(v), y2: y(v) }), text(left - 6, y(v) + 4, short(v), { class: "tick", "text-anchor": "end" }))),
    ...ticks(N, logarithmic).map((n) => svg("g", {}, svg("line", { class: "grid", x1: x(n), x2: x(n), y1: top, y2: bottom }), text(x(n), bottom + 16, short(n), { class: "tick", "text-anchor": "middle" }))),
    text(right, height - 4, "rows N", { class: "tick", "text-anchor": "end" }), text(4, 11, "parameters", { class: "tick" }),
  ];
  const named = curveNames(series, { fits, x, y, top, right, highest });
  const id = clipId();
  return picture(width, height, label,
    svg("clipPath", { id }, svg("rect", { x: left, y: top - 8, width: right - left + 10, height: bottom - top + 8 })), ...grid,
    svg("g", { "clip-path": `url(#${id})` }, ...series.map((s) => svg("polyline", { class: "curve " + s.kind, points: (s.points || []).filter((p, k, points) => fits(p) || fits(points[k - 1] || p)).map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ") }))),
    ...series.flatMap((s) => (s.dots || []).filter(fits).map((p) => svg("circle", { class: "dot " + s.kind, cx: x(p[0]), cy: y(p[1]), r: p[2] ? 6 : 4 }, svg("title", {}, `${s.name}: ${p[1].toLocaleString("en")} parameters at N = ${p[0].toLocaleString("en")}`)))),
    ...named);
}
// The name of each curve where it ends, or where it leaves the picture upwards; names that would touch are moved apart.
function curveNames(series, { fits, x, y, top, right, highest }) {
  let free = Infinity;
  return series.filter((s) => s.points)
    .map((s) => {
      const inside = s.points.filter((p) => fits(p) && p[1] <= highest * 1.05), leaves = s.points.some((p) => fits(p) && p[1] > highest * 1.05);
      const [n, v] = inside.at(-1) || s.points[0];
      return leaves ? { s, at: x(n) + 8, low: top + 4, anchor: "start", more: " ↑" } : { s, at: Math.min(x(n), right), low: y(v) - 7, anchor: "end", more: "" };
    })
    .sort((a, b) => b.low - a.low)
    .map(({ s, at, low, anchor, more }) => { free = Math.min(low, free - 15); return text(at, free, s.name + more, { class: "tick name " + s.kind, "text-anchor": anchor }); });
}
const short = (v) => (v >= 1e6 ? (v / 1e6).toLocaleString("en", { maximumFractionDigits: 1 }) + "M" : v >= 1e4 ? Math.round(v / 1e3) + "k" : v.toLocaleString("en"));
