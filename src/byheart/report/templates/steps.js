// From an evaluated row to steps that can be looked at one after the other: one per layer, each with a picture, an
// equation and a sentence, all of them from the numbers that the layers gave.
//
// query: {memory, engine, run, row, which, others}; others: memorized rows as {run, words, kind, me}, for the background.
// A step's content is computed when it is opened (`open`): a network may have thousands of layers.
function stepsOfRow(query) {
  const { memory, engine, run, row, which } = query, { network } = memory, stages = memory.steps;
  const mixes = network.layers.findIndex((l) => ["attention", "pool", "flatten"].includes(l.layer));
  const steps = [{ stage: 0, open: once(() => inputStep(query)) }];
  let layer = 0;
  stages.forEach((stage, s) => {
    for (let k = 0; k < stage.layers; k++, layer++) {
      const at = { ...query, layer, stage, s, place: k, mixed: mixes >= 0 && layer > mixes, type: network.layers[layer], first: layer - k };
      at.before = layer ? run.traces[which][layer - 1] : run.inputs[followed(query)];
      at.after = run.traces[which][layer];
      steps.push({ stage: s + 1, layer, open: once(() => layerStep(at)) });
      if (["attention", "pool"].includes(at.type.layer) && at.after.length === 1) steps.push({ stage: s + 1, layer, open: once(() => idStep(at)) });
    }
  });
  return steps;
}
// Which token's stream is looked at: the one that is read, of several the chosen one.
const followed = ({ memory, run, which }) => (memory.network.read === "each" ? Math.min(run.places[which], run.inputs.length - 1) : run.inputs.length - 1);
const once = (make) => { let made = null; return () => (made ||= make()); };
const namesOf = ({ run, row, engine }) => run.inputs.map((_, k) => { const token = row[k - run.inputs.length + row.length]; return token === undefined ? "·" : typeof token === "string" ? token : engine.show(token); });
const quoted = (word) => "“" + word + "”";
const paragraph = (...parts) => element("p", {}, ...parts.map((part) => (typeof part === "object" && !(part instanceof Node) ? number(part) : part)));
const capital = (words) => words[0].toUpperCase() + words.slice(1);
const plural = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;

function inputStep(query) {
  const { memory, run } = query, names = namesOf(query), symbols = memory.encoder.symbols, at = followed(query);
  return {
    title: "Tokens become numbers", draw: (width) => tileFigure(width, names.map((word, k) => ({ word, lines: run.inputs[k].map(roughText) })), at, "the tokens and their numbers"),
    words: [symbols
      ? paragraph(`The row is tokenized. A token's number is its position in the list of symbols, counted from 1: ${symbols.slice(0, 30).map((s, k) => `${s} ${k + 1}`).join(", ")}${symbols.length > 30 ? ", …" : ""}.`, memory.encoder.padded ? " 0 (shown as ·) pads rows that are shorter than the longest one." : "")
      : paragraph("Each token is a vector of numbers."),
    ...(memory.encoder.positions ? [paragraph("The second number is the token's position in the row, counted from 0: so order matters.")] : [])],
  };
}

function tileFigure(width, tiles, me, label) {
  const step = Math.min(96, (width - 12) / tiles.length), box = step - 6, left = (width - step * tiles.length) / 2, small = step < 40, tall = 46 + 20 * Math.max(...tiles.map((t) => Math.min(4, t.lines.length)));
  return picture(width, tall + 22, label, ...tiles.flatMap(({ word, lines }, k) => {
    const x = left + step * (k + 0.5);
    return [svg("rect", { class: "tile" + (k === me ? " me" : ""), x: x - box / 2, y: 10, width: box, height: tall, rx: 7 }),
      text(x, 38, cutText(word, small ? 3 : 8), { class: "letter", "text-anchor": "middle" }),
      ...lines.slice(0, 4).map((line, j) => text(x, 62 + 20 * j, cutText(line, small ? 4 : 11), { class: "tick", "text-anchor": "middle" }))];
  }));
}

function layerStep(at) {
  const { type, before, after } = at, narrow = before.length === 1 && after.length === 1;
  if (type.layer === "residual" && narrow) return at.type.bias1 && at.type.bias1.length > 1 ? bentStep(at) : foldStep(at);
  if (type.layer === "attention" && narrow && type.heads.length === 1) return attentionStep(at);
  if (type.layer === "pool" && narrow) return poolStep(at);
  if (type.layer === "affine" && !type.relu && at.layer === at.memory.network.layers.length - 1) return answerStep(at);
  if (type.layer === "affine" && after.length === 1 && !at.mixed && at.layer === 0) return entryStep(at);
  return wideStep(at);
}

function entryStep(at) {
  const { engine, run, memory } = at, { rows: [w], bias } = engine.weightsOf(at.layer), names = namesOf(at), me = followed(at), x = run.inputs[me];
  const notes = memory.encoder.symbols ? [`number of ${quoted(names[me])}`, "its position"] : x.map((_, j) => `coordinate ${j + 1}`);
  const terms = w.flatMap((weight, j) => [...(j ? ["+"] : []), { value: weight, note: "weight" }, "·", { value: x[j], note: notes[j] || "position" }]);
  return {
    title: "One number for every token", draw: (width) => tileFigure(width, names.map((word, k) => ({ word, lines: [roughText(run.states[at.layer][k][0])] })), me, "every token's number"),
    equation: [...terms, ...(bias && bias[0].n ? ["+", { value: bias[0], note: "bias" }] : []), "=", { value: at.after[0], note: `${quoted(names[me])} at its position`, strong: true }],
    words: [paragraph("E_in, the first layer, maps the token and its position to one number. The picture shows those of all tokens; the equation is for the token that yields the answer.")],
  };
}

// Points for the background of a picture: tokens of this row until they are mixed, afterwards the memorized rows.
function marksAt(at, layer) {
  const { run, others } = at;
  if (!at.mixed) {
    const names = namesOf(at), Z = (k, i) => (k < 0 ? run.inputs[i] : run.states[k][i])[0];
    return names.map((words, i) => ({ before: Z(layer - 1, i), after: Z(layer, i), words, kind: i, me: i === followed(at) }));
  }
  const mine = at.untyped ? [] : [{ run, words: ownWord(at), kind: at.kind ?? 0, me: true, which: at.which }];
  return [...others.filter((o) => !o.me), ...mine].map((o) => { const trace = o.run.traces[o.which || 0]; return { before: trace[layer - 1][0], after: trace[layer][0], words: o.words, kind: o.kind, me: o.me }; });
}
const asWord = (row) => (row.every((token) => typeof token === "string") ? row.join(row.some((token) => [...token].length > 1) ? " " : "") : row.map(String).join(" "));

const ownWord = (at) => (at.memory.network.read === "each" ? namesOf(at)[followed(at)] : asWord(at.row));

function foldStep(at) {
  const { engine, layer, run, which, stage } = at, [crease] = engine.bends(layer), h = at.before[0], next = at.after[0];
  const fired = run.active[which][layer], beyond = engine.piece(layer, [true]), mirror = compare(beyond.slope, whole(-1)) === 0, moved = fired[0];
  const marks = marksAt(at, layer).map((m) => ({ ...m, turned: crease && compare(m.before, crease) > 0 }));
  const values = marks.flatMap((m) => [m.before, m.after]), low = smallest([whole(0), ...values]);
  const full = crease ? lowest(times2(crease, whole(2))) : null, most = largest(values), high = full && compare(most, full) <= 0 && compare(full, lowest(times2(most, whole(5)))) <= 0 ? full : most;
  const bits = stage.layers > 1 ? Array.from({ length: Math.min(at.place + 1, stage.layers) }, (_, k) => run.active[which][at.first + k].some(Boolean)) : null;
  const folds = stage.name === "folds" || stage.kind === "folds", lastFold = folds && at.place === stage.layers - 1, cells = lastFold ? cellsOf(at, low, high) : [];
  return {
    title: (folds ? "Fold " : stage.name === "token hash" ? "Hash: fold " : capital(stage.name) + ": fold ") + `${at.place + 1} of ${stage.layers}`,
    draw: (width) => foldFigure(width, marks, { label: "the strip before and after this fold", crease, low, high, cells }),
    equation: moved
      ? [{ value: next, note: "after", strong: true }, "=", { value: beyond.constant, note: mirror ? "twice the crease" : "constant" }, mirror ? "−" : "+", ...(mirror ? [] : [{ value: beyond.slope, note: "slope" }, "·"]), { value: h, note: "before" }]
      : [{ value: next, note: "after", strong: true }, "=", ...(compare(h, next) ? [{ value: minus(next, h), note: "bias" }, "+"] : []), { value: h, note: "before: it stays" }],
    bits, folds,
    words: [crease ? paragraph("One unit, max(0, ·), that acts only beyond the crease at ", crease, ". ", h, moved ? (mirror ? " lies beyond it and is reflected." : " lies beyond it and is bent back.") : " does not lie beyond it and stays.") : paragraph("This unit never acts."),
      paragraph(!at.mixed ? "All tokens of the row pass through the same fold, so that sums can distinguish rows with the same tokens in another order."
        : lastFold ? "That was the last one: the strip is short now, and the cell in which a row lies is its label."
          : folds ? "Every memorized row goes through the same folds. Which of them turn it over is written in the bits of its number." : "")],
  };
}

// Where the logits' winner changes, on the strip: [{low, high, kind, words}].
function cellsOf(at, low, high) {
  const { engine, memory } = at, end = memory.network.layers.length - 1;
  if (memory.network.readout.decode !== "argmax" || at.layer !== end - 1 || memory.network.layers[end].layer !== "affine") return [];
  const { rows, bias } = engine.weightsOf(end), lines = rows.map((r, g) => ({ a: r[0], b: bias ? bias[g] : whole(0), g }));
  return lines.flatMap(({ a, b, g }) => {
    let [from, until] = [low, high];
    for (const other of lines) {
      const slope = minus(a, other.a);
      if (!slope.n) { if (other.g !== g && compare(other.b, b) >= 0) return []; continue; }
      const x = minus(other.b, b), crossing = slope.n < 0n ? { n: -x.n * slope.d, d: -slope.n * x.d } : { n: x.n * slope.d, d: slope.n * x.d };
      if (slope.n > 0n) from = largest([from, crossing]); else until = smallest([until, crossing]);
    }
    return compare(from, until) < 0 ? [{ low: lowest(from), high: lowest(until), kind: g, words: String(memory.classes[g]) }] : [];
  });
}

function bentStep(at) {
  const { engine, layer, run, which, stage } = at, fired = run.active[which][layer], units = fired.length;
  const marks = marksAt(at, layer).map((m) => ({ ...m, x: m.before, y: m.after })), me = at.before[0], { slope, constant } = engine.piece(layer, fired);
  const bends = engine.bends(layer), ordered = bends.map((b, k) => ({ b, k })).filter(({ b }) => b).sort((p, q) => compare(p.b, q.b));
  const inside = marks.map((m) => m.before), low = smallest(inside), high = largest(inside);
  // From left to right: a unit of positive weight begins to act at its bend, one of negative weight ends there.
  let line = engine.piece(layer, bends.map((b, k) => (b ? (engine.rising(layer, k) ? compare(low, b) > 0 : compare(low, b) <= 0) : true)));
  const heightAt = (x) => lowest(plus(times2(line.slope, x), line.constant)), corners = [{ x: low, y: heightAt(low) }];
  for (const { b, k } of ordered) {
    if (compare(b, low) < 0 || compare(b, high) >= 0) continue;
    corners.push({ x: b, y: heightAt(b) });
    const { slope: s, constant: c } = engine.unit(layer, k), join = engine.rising(layer, k) ? plus : minus;
    line = { slope: lowest(join(line.slope, s)), constant: lowest(join(line.constant, c)) };
  }
  corners.push({ x: high, y: heightAt(high) });
  const grouped = new Map();
  marks.forEach((m) => { const key = ordered.filter(({ b }) => compare(m.before, b) > 0).length; grouped.set(key, [...(grouped.get(key) || []), m]); });
  const keys = [...grouped.keys()].sort((a, b) => a - b), bands = keys.map((key, k) => ({ low: smallest(grouped.get(key).map((m) => m.before)), high: largest(grouped.get(key).map((m) => m.before)), words: stage.kind === "group" ? `group ${key}` : "", me: grouped.get(key).some((m) => m.me) }));
  const group = 1 + fired.slice(1).filter(Boolean).length, isGroup = stage.kind === "group";
  return {
    title: isGroup ? "The group’s line" : stage.name === "label line" ? "One line through all rows" : capital(stage.name), draw: (width) => bendFigure(width, marks, corners, { label: "the bent line that this block draws, and the rows on it", bands: isGroup ? bands : [], across: "id of the row →", upwards: "→" }),
    equation: [{ value: slope, note: isGroup ? `S of group ${group}` : "slope here" }, "·", { value: me, note: "the id" }, "+", { value: constant, note: isGroup ? "U of the group" : "constant here" }, "=", { value: at.after[0], note: "where the line is", strong: true }],
    words: [paragraph(`One block with ${plural(units, "unit")}. Each unit bends the line once${isGroup ? ", in a gap between groups" : ""}; ${fired.filter(Boolean).length === 1 ? "one of them acts" : fired.filter(Boolean).length + " of them act"} here.`),
      isGroup ? paragraph(`It falls into group ${group} of ${units}. S and U are the group’s own: with them the folds that follow have to bring every id of the group to its label.`) : paragraph(stage.name === "label line" ? "The height of the line at an id is its label." : stage.words ? `This stage ${stage.words}.` : "")],
  };
}

function attentionStep(at) {
  const { engine, layer, run } = at, names = namesOf(at), me = followed(at), chosen = at.type.kind === "hardmax" && at.type.heads[0].key, hub = run.heads[layer][0].hub === "start" ? 1 : 0;
  const head = run.heads[layer].find((h) => h.k === me + hub), count = head.keys.length, factor = engine.factorOf(layer);
  const before = (k) => (layer ? run.states[layer - 1][k] : run.inputs[k])[0];
  const tokens = names.map((words, k) => { const j = head.keys.indexOf(k + hub); return { words, value: before(k), attended: j >= 0, adds: j < 0 ? whole(0) : lowest({ n: head.values[j][0].n, d: head.values[j][0].d * BigInt(count) }) }; });
  const sum = head.keys.map((_, j) => head.values[j][0]).reduce(plus, whole(0)), mean = lowest({ n: sum.n, d: sum.d * BigInt(count) });
  return {
    title: "Attention adds the row up", draw: (width) => attentionFigure(width, tokens, me, { label: "attention from this token to those it attends to, and the sum of their shares", weight: numberText({ n: 1n, d: BigInt(count) }) }),
    equation: [{ value: at.before[0], note: "the token itself" }, "+", { value: mean, note: `mean of ${count}, times ${numberText(factor)}` }, "=", { value: at.after[0], note: "the context’s id", strong: true }],
    words: [paragraph(chosen ? "Hardmax attends to the tokens with the largest score alone." : `${at.type.pattern === "causal" ? "A token attends to itself and those before it. " : ""}All scores are alike, so all ${plural(count, "token")} weigh the same: attention is the mean.`, " Its output weight ", factor, ` is ${factor.n % BigInt(count) === 0n && factor.d === 1n ? `${numberText({ n: factor.n / BigInt(count), d: 1n })} · ${count}, which turns the mean into a sum` : "a multiple of it"}: each token adds its share, shown as a bar.`),
      paragraph("The stream now represents the token in its row.")],
  };
}

function poolStep(at) {
  const { layer, run } = at, names = namesOf(at), tokens = names.map((words, k) => { const value = (layer ? run.states[layer - 1][k] : run.inputs[k])[0]; return { words, value, adds: value, attended: false }; });
  return {
    title: "The set is added up", draw: (width) => attentionFigure(width, tokens, -1, { label: "the numbers of all tokens and their sum" }),
    equation: [...tokens.slice(0, 8).flatMap((t, k) => [...(k ? ["+"] : []), { value: t.value, note: quoted(t.words) }]), ...(tokens.length > 8 ? ["+ …"] : []), "=", { value: at.after[0], note: "the set’s id", strong: true }],
    words: [paragraph("One token remains: the sum of all. It does not depend on their order.")],
  };
}

function idStep(at) {
  const marks = at.others.length ? marksAt({ ...at, mixed: true }, at.layer).map((m) => ({ ...m, v: m.after })) : [{ v: at.after[0], words: ownWord(at), kind: 0, me: true }];
  const low = smallest([...marks.map((m) => m.v)]), high = largest(marks.map((m) => m.v)), spare = compare(low, high) ? 0n : 1n, each = at.memory.network.read === "each";
  return {
    title: each ? "The token in its row is one number now" : "The row is one number now", draw: (width) => lineFigure(width, marks, { label: "the ids of the memorized rows on a line", low: minus(low, whole(spare)), high: plus(high, whole(spare)) }),
    equation: [{ value: at.after[0], note: "the context’s id", strong: true }],
    words: [paragraph(each ? "The token’s stream holds the id of the token in its row." : "The stream holds the id of the whole row.", " Different labels need different ids: from here on, the network only has to map ids to labels.")],
  };
}

// A row of the last layer times the stream, where few weights are not zero; null where that would be a long line.
function outputTerms({ before, after }, { rows, bias }, k, notes) {
  const used = rows[k].map((w, j) => ({ w, j })).filter(({ w }) => w.n), single = rows[k].length === 1;
  if (used.length > 3) return null;
  const products = (used.length ? used : [{ w: rows[k][0], j: 0 }]).flatMap(({ w, j }, i) => [...(i ? ["+"] : []), { value: w, note: "weight" }, "·", { value: before[j], note: single ? notes.stream : notes.names?.[j] ?? `number ${j + 1}` }]);
  return [...products, ...(bias && bias[k].n ? ["+", { value: bias[k], note: "bias" }] : []), "=", { value: after[k], note: notes.out, strong: true }];
}

function answerStep(at) {
  const { memory, run, which, engine } = at, { readout } = memory.network, answer = run.answers[which], names = memory.classes.map(String), map = engine.weightsOf(at.layer);
  if (readout.decode === "value") {
    const first = readout.offset, out = at.after[0];
    return {
      title: "The number is the label", equation: outputTerms(at, map, 0, { stream: "the stream", out: "number of the label", names: at.memory.names }),
      draw: (width) => lineFigure(width, [{ v: out, words: answer === null ? "?" : answer, kind: Math.max(0, names.indexOf(answer)), me: true }], { label: "the output among the numbers of the labels", low: smallest([whole(first), out]), high: largest([whole(first + Math.max(1, names.length - 1)), out]) }),
      words: [paragraph("The labels are numbered: ", names.slice(0, 12).map((name, k) => `${first + k} ${name}`).join(", "), names.length > 12 ? ", …" : "", ".")], answer,
    };
  }
  const best = largest(at.after), me = at.after.findIndex((v) => compare(v, best) === 0), single = map.rows[me].length === 1;
  return {
    title: "One logit for every label", draw: (width) => barsFigure(width, at.after.slice(0, 24).map((v, g) => ({ v, words: names[g], kind: g, me: g === me })), { label: "the logits of the labels" }),
    equation: outputTerms(at, map, me, { stream: "the folded number", out: `logit of ${quoted(names[me])}` }),
    words: [paragraph(`E_out, the last layer, is a line for every label; the largest is the answer${single ? ". Each is largest on its own cell of the strip" : ""}.`)], answer,
  };
}

// A layer on several numbers: the stream before and after it.
function wideStep(at) {
  const { stage, run, which, layer, before, after, type } = at, fired = run.active[which][layer];
  const kinds = { affine: "an affine map" + (type.relu ? " and max(0, ·)" : ""), residual: "a block that adds to the stream", attention: "attention", embedding: "a table", pool: "the sum of all tokens", flatten: "all tokens, one after the other", threshold: "threshold units", "global-token": "one more token" };
  const names = at.memory.names && at.memory.names.length === after.length ? at.memory.names : null;
  const table = element("table", { class: "stream" + (names ? " called" : "") }, element("tr", {}, element("th", {}, "number"), element("th", {}, "before"), element("th", {}, "after")));
  Array.from({ length: Math.min(24, Math.max(before.length, after.length)) }, (_, k) => {
    const changed = before[k] && after[k] && before.length === after.length && compare(before[k], after[k]);
    table.append(element("tr", changed ? { class: "changed" } : {}, element("td", {}, names ? names[k] : String(k + 1)), element("td", {}, before[k] && before.length <= 24 ? number(before[k]) : ""), element("td", {}, after[k] ? number(after[k]) : "")));
  });
  return {
    title: stage.layers > 1 ? `${capital(stage.name)}: layer ${at.place + 1} of ${stage.layers}` : capital(stage.name), draw: () => element("div", { class: "scroll" }, table),
    words: [paragraph(`${capital(kinds[type.layer])}${fired ? `; ${fired.filter(Boolean).length} of its ${plural(fired.length, "unit")} act` : ""}. This stage ${stage.words || "is part of the network"}.${before.length === after.length ? " Changed numbers are highlighted." : ""}`)],
    answer: at.layer === at.memory.network.layers.length - 1 ? run.answers[which] : undefined,
  };
}

// The names of all steps of a row, each with its stage's output.
function chaptersOf({ memory, run, which }, names = {}) {
  let layer = -1;
  const value = () => { const z = run.traces[which][layer]; return z.length === 1 ? roughText(z[0]) : ""; };
  const stages = memory.steps.map((stage) => { layer += stage.layers; return { name: names[stage.name] || stage.name, value: value() }; });
  stages[stages.length - 1].value = run.answers[which] === null ? "none" : cutText(String(run.answers[which]), 11);
  return [{ name: "tokens", value: "" }, ...stages];
}

// Every step below the one before, for paper.
const printedSteps = (steps, answerWords, most = 60) => (steps.length > most ? [] : steps.map(({ open }, k) => {
  const step = open();
  return element("div", {}, element("h3", {}, `${k + 1}. ${step.title}`), step.draw ? step.draw(640) : "", ...(step.equation ? [equation(step.equation)] : []), ...step.words.map((node) => node.cloneNode(true)), ...(step.answer !== undefined ? [element("p", { class: "answer" }, answerWords(step.answer))] : []));
}));

// The player: chapters as buttons, the step's picture, equation and words, back and next, arrow keys.
function makePlayer(root, { answerWords, onStep = () => {} }) {
  let steps = [], chapters = [], at = 0, drawn = 0;
  const list = element("div", { class: "chapters" }), title = element("h3", { "aria-live": "polite" }), stage = element("div", { class: "figure" }), live = element("div", { class: "live-text", "aria-live": "polite" });
  const back = element("button", { type: "button", class: "back" }, "← Back"), play = element("button", { type: "button", class: "play", "aria-pressed": "false", "aria-label": "play all steps" }, "▶"), next = element("button", { type: "button", class: "next" }, "Next →"), count = element("span", { class: "count soft" });
  root.replaceChildren(list, element("div", { class: "stepper" }, back, element("span", { class: "middle" }, play, count), next), title, stage, live);
  const draw = () => {
    const width = Math.max(260, Math.floor(stage.clientWidth || root.clientWidth || 640));
    drawn = width;
    const step = steps[at] && steps[at].open();
    stage.replaceChildren(step && step.draw ? step.draw(width) : "");
  };
  const show = () => {
    root.hidden = !steps[at];
    if (!steps[at]) return;
    const step = steps[at].open(), now = steps[at].chapter;
    const groups = new Map(); // a line for building and one for queries, where both exist
    chapters.forEach((chapter, k) => {
      const button = element("button", { type: "button", class: "chapter" + (k === now ? " current" : k < now ? " done" : ""), "aria-current": k === now ? "step" : null }, chapter.name, ...(chapter.value ? [element("small", {}, chapter.value)] : []));
      button.addEventListener("click", () => go(steps.findIndex((s) => s.chapter === k)));
      const name = chapter.group || "";
      groups.set(name, [...(groups.get(name) || []), element("li", {}, button)]);
    });
    list.replaceChildren(...[...groups].map(([name, items]) => element("ol", { "aria-label": name || "steps" }, ...(name ? [element("li", { class: "group" }, name)] : []), ...items)));
    const current = list.querySelector(".current"), box = current && current.parentNode;
    if (box) list.scrollLeft = box.offsetLeft - list.offsetLeft - (list.clientWidth - box.offsetWidth) / 2;
    back.disabled = at === 0;
    next.disabled = at === steps.length - 1;
    count.textContent = `step ${at + 1} of ${steps.length}`;
    title.textContent = step.title;
    const bits = step.bits ? [element("p", { class: "bits" }, element("small", {}, step.folds ? "bits, one for each fold (1: turned over)" : "turned over by this fold (1) or not (0)"), ...step.bits.map((bit, k) => element("b", { class: (bit ? "one" : "zero") + (k === step.bits.length - 1 ? " current" : "") }, bit ? "1" : "0")))] : [];
    live.replaceChildren(...(step.equation ? [equation(step.equation)] : []), ...bits, ...step.words, ...(step.answer !== undefined ? [element("p", { class: "answer" }, answerWords(step.answer))] : []), ...(step.more ? [step.more] : []));
    draw();
    stage.classList.remove("enter");
    void stage.offsetWidth; // starts the animation again
    stage.classList.add("enter");
    onStep(steps[at]);
  };
  let playing = null;
  const stop = () => { clearInterval(playing); playing = null; play.textContent = "▶"; play.setAttribute("aria-pressed", "false"); };
  const start = () => {
    if (at === steps.length - 1) go(0);
    playing = setInterval(() => { go(at + 1); if (at === steps.length - 1) stop(); }, 1800);
    play.textContent = "❚❚";
    play.setAttribute("aria-pressed", "true");
  };
  play.addEventListener("click", () => (playing === null ? start() : stop()));
  const go = (k) => { if (k >= 0 && k < steps.length && k !== at) { at = k; show(); } };
  const turn = (by) => { stop(); go(at + by); };
  back.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !steps.length || event.target.closest("input, select, textarea, [contenteditable]")) return;
    if (event.key === "ArrowRight") { event.preventDefault(); turn(1); }
    if (event.key === "ArrowLeft") { event.preventDefault(); turn(-1); }
  });
  new ResizeObserver(() => { if (steps.length && Math.abs((stage.clientWidth || drawn) - drawn) > 8) draw(); }).observe(root);
  return {
    // Steps are {chapter, open}; chapters are {name, value, group}, the value is the stage's output.
    load(newSteps, newChapters, start = 0) { steps = newSteps; chapters = newChapters; at = Math.min(start, Math.max(0, steps.length - 1)); show(); },
    clear() { stop(); steps = []; root.hidden = true; },
    get at() { return at; },
    get chapter() { return steps[at] ? steps[at].chapter : 0; },
    go,
  };
}
