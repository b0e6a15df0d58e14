// Builds a small memory in the browser: the same parts as `compact` (docs/compact.md), found by trying lines.
//
//   E_in -> a few folds that hash the token -> attention: x = φ + b·Σφ -> one line per group of ids -> folds -> C logits
//
// All numbers are integers. The search uses doubles, and stops where one would not be exact. The finished
// network is evaluated layer by layer, with integers of any length (exact.js).

// Numbers that look random and are the same everywhere (mulberry32).
const randomFrom = (seed) => {
  let a = (seed * 2654435761 + 97) >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
};
const safe = (x) => { if (!Number.isSafeInteger(x)) throw new Error("the numbers of this search became too long; try fewer or shorter words"); return x; };
const byCodePoint = (a, b) => {
  const [p, q] = [[...a], [...b]];
  for (let i = 0; i < Math.min(p.length, q.length); i++) if (p[i] !== q[i]) return p[i].codePointAt(0) - q[i].codePointAt(0);
  return p.length - q.length;
};

// Rows as typed -> {rows, problem, remarks}: a problem names the row (counted from 1) and the remedy.
function readRows(typed, cut, limits) {
  const rows = [], remarks = [], seen = new Map();
  const problem = (at, words) => ({ problem: words, at, rows: [], remarks });
  for (const [k, { word, label }] of typed.entries()) {
    const [text, name] = [word.trim(), label.trim()];
    if (!text && !name) continue;
    if (!text) return problem(k, `Row ${k + 1} has the label “${name}” but no word. Type a word, or remove the row.`);
    if (!name) return problem(k, `Row ${k + 1}, “${text}”, has no label. Type one, or remove the row.`);
    if (/^\[.*\]$/s.test(text)) return problem(k, `Row ${k + 1}: a word in square brackets would be read as a list of tokens. Leave the brackets out.`);
    if (/[\ud800-\udfff]/u.test(text) || /[\ud800-\udfff]/u.test(name)) return problem(k, `Row ${k + 1} contains half of a character. Type it again.`);
    const tokens = cut(text);
    if (tokens.length > limits.length) return problem(k, `Row ${k + 1} has ${tokens.length} tokens; this page accepts up to ${limits.length}.`);
    if ([...name].length > limits.label) return problem(k, `The label of row ${k + 1} is longer than ${limits.label} characters.`);
    const key = JSON.stringify(tokens), before = seen.get(key);
    if (before !== undefined && rows[before.place].label !== name)
      return problem(k, `Rows ${before.k + 1} and ${k + 1} are both “${text}”, but one is labelled “${rows[before.place].label}” and the other “${name}”. A network is a function: one input, one answer. Change a word or a label.`);
    if (before !== undefined) { remarks.push(`row ${k + 1} equals row ${before.k + 1} and is counted once`); continue; }
    seen.set(key, { k, place: rows.length });
    rows.push({ text, tokens, label: name, typed: k });
  }
  if (!rows.length) return problem(0, "There is nothing to memorize yet. Type a word and its label.");
  if (rows.length > limits.rows) return problem(limits.rows, `This page accepts up to ${limits.rows} rows; byheart itself accepts millions.`);
  if (new Set(rows.map((row) => row.label)).size > limits.classes) return problem(0, `This page accepts up to ${limits.classes} different labels.`);
  return { rows, remarks, problem: null };
}

function encoderOf(rows) {
  const length = Math.max(...rows.map((row) => row.tokens.length));
  return {
    task: "next-token", positions: true, length, dimension: 1, pad_vector: null,
    symbols: [...new Set(rows.flatMap((row) => row.tokens))].sort(byCodePoint),
    padded: rows.some((row) => row.tokens.length < length),
  };
}

// Tokens to ids. Letters are numbered; t = code + (V+1)·place. Sums of t would not distinguish “act” from “cat”: folds hash t.
function hashTokens(rows, encoder, random) {
  const codes = new Map(encoder.symbols.map((symbol, k) => [symbol, k + 1])), stride = encoder.symbols.length + 1, n = encoder.length;
  const lines = rows.map(({ tokens }) => Array.from({ length: n }, (_, place) => (codes.get(tokens[place - n + tokens.length]) || 0) + stride * place));
  const top = Math.max(...lines.flat()), failures = [], room = Math.ceil(rows.length ** 2 / top); // ids must be rarer than pairs of rows
  let draws = 0;
  for (let folds = 0; folds < 40; folds++) {
    for (let draw = 0; draw < 12; draw++) {
      draws++;
      const scale = folds ? 1 + Math.floor(random() * (room * 2 ** (folds / 2) + folds + draw)) : 1, factor = folds ? 1 + Math.floor(random() * 3) : 1 + draw;
      const places = [];
      for (let k = 0, high = scale * top; k < folds && high > 3; k++) { high = Math.ceil(high * (0.5 + 0.42 * random())); places.push(high); }
      if (places.length < folds) continue;
      const phi = (t) => places.reduce((h, p) => (h > p ? 2 * p - h : h), safe(scale * t));
      const ids = lines.map((line) => { const numbers = line.map(phi); return safe(numbers[n - 1] + factor * numbers.reduce((a, b) => a + b, 0)); });
      const clash = clashIn(ids);
      if (!clash) return { scale, stride, factor, places, ids, draws, failures };
      if (failures.length < 40) failures.push({ folds, factor, first: rows[clash[0]].text, second: rows[clash[1]].text, id: ids[clash[0]] });
    }
  }
  throw new Error("two rows kept getting the same id; change a word");
}
const clashIn = (ids) => {
  const seen = new Map();
  for (const [k, id] of ids.entries()) { if (seen.has(id)) return [seen.get(id), k]; seen.set(id, k); }
  return null;
};

// After all folds a value of [0, 2^L·W] lies in [0, W]: a strip folded in half L times is a zigzag of period 2W.
const folded = (v, strip) => { const rest = v % (2 * strip); return rest > strip ? 2 * strip - rest : rest; };

// Lines S·x + U, one per group of neighbouring ids, each meeting the one before in the gap between their groups
// (Lemma 3). A line is taken only if the folds bring every id of its group into the cell of its label.
function findLines(points, classes, folds, wanted, random, patience) {
  // A cell is 10, 100, … wide: so wide that a group has some slopes to choose from.
  const width = ((points[points.length - 1].id - points[0].id + 1) * wanted) / points.length, cell = 10 ** Math.max(1, Math.ceil(Math.log10((16 * classes ** (wanted / 2) * width) / (10 * classes * 2 ** folds)) + 0.5));
  const range = safe(cell * classes * 2 ** folds), lines = [];
  let place = 0, size = wanted, tried = 0;
  while (place < points.length) {
    const before = lines[lines.length - 1];
    let line = null, spent = 0;
    for (let count = Math.min(size, points.length - place); count && !line; count--) {
      const group = points.slice(place, place + count), budget = Math.min(patience, 300 + 8 * classes ** Math.max(0, count - 2));
      const found = tryLines(group, before, { range, folds, cell }, random, budget);
      spent += found.tries;
      if (found.line) { line = { ...found.line, tries: spent }; size = Math.min(wanted, count + 1); }
    }
    if (!line) return null;
    tried += spent;
    lines.push(line);
    place += line.count;
  }
  return { lines, range, folds, cell, tried };
}

// The smallest distance of a row from the edge of its cell: among equals, pictures are clearer with more.
function roomIn({ lines, range, folds, cell }, points) {
  let place = 0;
  return Math.min(...lines.flatMap((line) => points.slice(place, (place += line.count)).map(({ id }) => { const rest = folded(line.slope * id + line.constant, range / 2 ** folds) % cell; return Math.min(rest, cell - rest) / cell; })));
}

// A value near v that the folds bring into the label's cell: the strip passes it twice in every period.
function nearCell(v, label, strip, cell, random) {
  const inside = label * cell + 1 + Math.floor(random() * (cell - 1)), rest = v % (2 * strip);
  return v - rest + (random() < 0.5 ? inside : 2 * strip - inside);
}

// Lines through the cells of the first two ids of a group, sampled until the others end in theirs too.
function tryLines(group, before, { range, folds, cell }, random, budget) {
  const strip = range / 2 ** folds, first = group[0].id, last = group[group.length - 1].id, up = !before || before.slope < 0;
  const gap = before ? first - before.last : 0, most = Math.max(2, Math.floor((0.98 * range) / Math.max(1, last - first)));
  const cap = group.length > 1 ? most : before ? Math.max(4, Math.ceil((2 * range) / gap)) : 3; // one id alone: no need to be steep
  const limits = (slope) => { // the heights that a line of this slope may have at `first`
    const rise = slope * (last - first), low = Math.max(1, 1 - rise), high = Math.min(range - 1, range - 1 - rise);
    if (!before) return [low, high];
    const there = before.slope * first + before.constant, reach = Math.abs(slope - before.slope) * gap; // it must cross the line before it inside the gap
    return up ? [Math.max(low, there), Math.min(high, there + reach)] : [Math.max(low, there - reach), Math.min(high, there)];
  };
  for (let tries = 1; tries <= budget; tries++) {
    let slope = (1 + Math.floor(random() * cap)) * (up ? 1 : -1), [low, high] = limits(slope);
    if (low > high) continue;
    const start = nearCell(low + Math.floor(random() * (high - low + 1)), group[0].label, strip, cell, random);
    if (group.length > 1) {
      const step = group[1].id - first, wanted = start + slope * step;
      if (wanted < 0) continue;
      slope += Math.round((nearCell(wanted, group[1].label, strip, cell, random) - wanted) / step);
      if (up ? slope < 1 || slope > cap : slope > -1 || slope < -cap) continue;
      [low, high] = limits(slope);
    }
    if (start < low || start > high) continue;
    if (group.every(({ id, label }) => { const v = folded(start + slope * (id - first), strip); return v > label * cell && v < (label + 1) * cell; }))
      return { tries, line: { slope, constant: safe(start - safe(slope * first)), first, last, count: group.length } };
  }
  return { tries: budget, line: null };
}

// The fewest parameters among a few numbers of folds: more folds make groups longer.
function labelMemory(points, classes, seed) {
  const count = points.length, bits = Math.max(0.3, Math.log2(classes)), few = count <= 48, draws = count <= 16 ? 8 : count <= 100 ? 4 : 2;
  const plans = [];
  for (let folds = 3; folds <= 14; folds++) { // two would do for very few rows, and show little
    const group = Math.max(1, Math.min(Math.floor((1.5 * folds + 1) / bits), Math.floor(2 + 10 / bits)));
    plans.push({ folds, group, cost: 3 * Math.ceil(count / group) + 4 * folds });
  }
  plans.sort((a, b) => a.cost - b.cost);
  let best = null;
  for (const plan of plans.slice(0, few ? 5 : 1)) for (let draw = 0; draw < draws; draw++) {
    const found = findLines(points, classes, plan.folds, plan.group, randomFrom(seed * 31 + 17 * draw + plan.folds), few ? 20000 : 100000);
    const cost = found ? 3 * found.lines.length + 4 * found.folds : Infinity;
    if (found && (!best || cost < best.cost || (cost === best.cost && roomIn(found, points) > roomIn(best, points)))) best = { ...found, cost };
  }
  for (let folds = 6; !best && folds < 30; folds += 4) best = findLines(points, classes, folds, 3, randomFrom(seed + folds), 50000);
  if (!best) throw new Error("no lines were found for these rows; change a word");
  return best;
}

const weights = (rows, columns) => ({ columns, rows: rows.map((row) => row.flatMap((w, j) => (w ? [[j, w]] : []))) });
const residual = (units, shift) => ({
  layer: "residual", weight1: weights(units.map(([w]) => [w]), 1), bias1: units.map(([, b]) => b),
  weight2: weights([units.map(([, , out]) => out)], units.length), bias2: [shift],
});
const affine = (matrix, bias) => ({ layer: "affine", weight: weights(matrix, matrix[0].length), bias, relu: false });

// One unit per group: the first makes the first line of x >= 0, each other one bends where two lines cross.
function selectorUnits(lines) {
  return lines.map((line, k) => {
    if (!k) return [1, 0, line.slope - 1];
    const change = line.slope - lines[k - 1].slope, sign = Math.sign(change);
    return [Math.abs(change), safe(sign * (line.constant - lines[k - 1].constant)), sign];
  });
}

// rows of readRows -> the network in the form of the file format, and how it came about.
function buildMemory(rows, seed = 1) {
  const classes = [...new Set(rows.map((row) => row.label))].sort(byCodePoint), encoder = encoderOf(rows);
  const hash = hashTokens(rows, encoder, randomFrom(seed));
  const points = rows.map((row, k) => ({ id: hash.ids[k], label: classes.indexOf(row.label), row: k })).sort((a, b) => a.id - b.id);
  const memory = labelMemory(points, classes.length, seed);
  const folds = Array.from({ length: memory.folds }, (_, k) => residual([[2, -memory.range / 2 ** k, -1]], 0));
  const cells = classes.map((_, g) => (memory.cell * g * (g + 1)) / 2);
  const stages = [
    ["E_in", [affine([[hash.scale, hash.scale * hash.stride]], [0])]],
    ["token hash", hash.places.map((place) => residual([[1, -place, -2]], 0))],
    ["attention", [{ layer: "attention", kind: "uniform", pattern: "full", heads: [{ value: weights([[1]], 1), output: weights([[safe(hash.factor * encoder.length)]], 1), key: null, query: null }] }]],
    ["label memory", [residual(selectorUnits(memory.lines), memory.lines[0].constant), ...folds]],
    ["E_out", [affine(classes.map((_, g) => [g]), cells.map((c) => -c))]],
  ].filter(([, layers]) => layers.length);
  const network = {
    layers: stages.flatMap(([, layers]) => layers), read: "last",
    readout: { decode: "argmax", classes: classes.length, offset: 0 }, stages: stages.map(([name, layers]) => [name, layers.length]),
  };
  return { network, encoder, classes, rows, seed, hash, points, memory };
}
