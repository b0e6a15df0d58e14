// The memory that was built here as a file of byheart's format 3 (docs/file-format.md): canonical text, checksum, the
// fingerprint of the rows, counted sizes and compact's budget. Its verdict is `undecided`: byheart's checker gives one.
const ascii = (text) => text.replace(/[\u0080-\uffff]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
const jsonText = (value, comma = ",", colon = ":") => {
  const write = (x) => {
    if (Array.isArray(x)) return "[" + x.map(write).join(comma) + "]";
    if (x && typeof x === "object") return "{" + Object.keys(x).sort().map((key) => JSON.stringify(key) + colon + write(x[key])).join(comma) + "}";
    return JSON.stringify(x);
  };
  return ascii(write(value));
};

// SHA-256 of bytes (FIPS 180-4), because a page that is opened from a disk has no crypto.subtle everywhere.
const sha256 = (() => {
  const primes = [];
  for (let p = 2; primes.length < 64; p++) if (primes.every((q) => p % q)) primes.push(p);
  const fraction = (x) => ((x - Math.floor(x)) * 4294967296) >>> 0;
  const K = primes.map((p) => fraction(Math.cbrt(p))), START = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  return (bytes) => {
    const length = bytes.length, padded = new Uint8Array(((length + 8) >> 6 << 6) + 64), view = new DataView(padded.buffer);
    padded.set(bytes);
    padded[length] = 0x80;
    view.setUint32(padded.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(padded.length - 4, (length << 3) >>> 0);
    const H = [...START], w = new Int32Array(64);
    for (let at = 0; at < padded.length; at += 64) {
      for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
      for (let i = 16; i < 64; i++) {
        const s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3), s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
        w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
      }
      let [a, b, c, d, e, f, g, h] = H;
      for (let i = 0; i < 64; i++) {
        const t1 = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
        const t2 = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
      }
      [a, b, c, d, e, f, g, h].forEach((x, i) => { H[i] = (H[i] + x) >>> 0; });
    }
    return H.map((x) => x.toString(16).padStart(8, "0")).join("");
  };
})();

// The counts in `size`; these networks have whole weights and one attention layer before the label memory.
function sizeOf(network) {
  const numbers = [];
  let width = 1, depth = 0;
  const count = (matrix) => matrix && matrix.rows.forEach((row) => { const full = Array(matrix.columns).fill(0); row.forEach(([j, w]) => { full[j] = w; }); numbers.push(...full); });
  for (const l of network.layers) {
    [l.weight, l.weight1, l.weight2, ...(l.heads || []).flatMap((h) => [h.value, h.output])].forEach(count);
    [l.bias, l.bias1, l.bias2].forEach((bias) => bias && numbers.push(...bias));
    if (l.layer !== "affine") { depth++; width = Math.max(width, l.bias1 ? l.bias1.length : 1); }
  }
  const bits = numbers.map((w) => (w ? Math.abs(w).toString(2).length : 0));
  return {
    parameters: numbers.length, nonzero: numbers.filter(Boolean).length, max_bits: Math.max(...bits), total_bits: bits.reduce((a, b) => a + b, 0),
    width, depth, blocks: depth - 1, attention_layers: 1, embedding_parameters: 0,
  };
}

const bitLength = (x) => (x ? x.toString(2).length : 0);
function inputsOf({ rows, encoder }) {
  const n = encoder.length, codes = new Map(encoder.symbols.map((symbol, k) => [symbol, k + 1]));
  const keys = rows.map(({ tokens }) => Array.from({ length: n }, (_, place) => (codes.get(tokens[place - n + tokens.length]) || 0) * n + place));
  const points = [...new Set(keys.flat())].sort((a, b) => a - b), rank = new Map(points.map((key, k) => [key, k]));
  return { points: points.map((key) => [Math.floor(key / n), key % n]), index: keys.map((row) => row.map((key) => rank.get(key))) };
}

// compact's budget with head=logits, as byheart.theory.guarantees.compact computes it from the same facts.
function budgetOf(built, terms) {
  const { points, index } = inputsOf(built), { encoder, rows } = built, classes = Math.max(2, built.classes.length);
  const tokenBits = Math.max(1, ...points.flat().map(bitLength)) + bitLength(encoder.symbols.length + 1);
  const walks = classes > terms.trap_classes, bits = Math.log2(classes) + (walks ? terms.cell_loss : 0), sumBits = bitLength(encoder.length);
  const root = terms.root * Math.sqrt(rows.length * bits), reading = (walks ? 2 : 5) * classes, lines = 3 * (rows.length + 1) + 1 + 2 * classes + terms.spare;
  const long = (idBits) => (walks ? Math.max(root + terms.id_bit * idBits, root / 2 + terms.long * terms.id_bit * idBits) : root);
  const label = (idBits) => Math.min(long(idBits) + terms.rest + reading, lines);
  const hashing = Math.min(4 * (tokenBits + terms.hash_spread), 3 * points.length + 1);
  const hashed = hashing + label(Math.max(tokenBits + 2, 2 * Math.log2(rows.length + 1) + 10) + sumBits + 6);
  const number = points.map(([code, place]) => code + (encoder.symbols.length + 1) * place);
  const sums = new Set(index.map((row) => row.reduce((sum, k) => sum + number[k], 0) + " " + row.at(-1)));
  const parameters = Math.ceil(5 + (sums.size === rows.length ? Math.min(hashed, label(2 * tokenBits + sumBits + 6)) : hashed));
  return { parameters, depth: Math.floor(parameters / 4) + 2, width: Math.max(1, Math.floor(parameters / 3)) };
}

function fingerprintOf(built) {
  const { points, index } = inputsOf(built), names = built.classes.map((label) => jsonText(label)), sorted = [...names].sort();
  const table = new Map(index.map((row, k) => { const line = [...row, sorted.indexOf(jsonText(built.rows[k].label))]; return [line.join(), line]; }));
  const lines = [...table.values()].sort((a, b) => { const k = a.findIndex((x, i) => x !== b[i]); return k < 0 ? 0 : a[k] - b[k]; });
  const head = jsonText({ version: "byheart data 1", encoder: built.encoder, classes: sorted, shape: built.encoder.length + 1 }, ", ", ": ");
  const text = new TextEncoder().encode(head + "points over 1: " + points.flat().map((x) => x.toString(16) + " ").join(""));
  const bytes = new Uint8Array(text.length + 8 * lines.flat().length), view = new DataView(bytes.buffer);
  bytes.set(text);
  lines.flat().forEach((x, k) => view.setInt32(text.length + 8 * k, x, true));
  return sha256(bytes);
}

// `agree`: how many rows the page's evaluator answered as labelled; `terms`: of the budget, from byheart itself.
function memoryFile(built, kind, agree, terms) {
  const bounds = budgetOf(built, terms), count = built.rows.length;
  const memory = {
    construction: "compact", options: { objective: "parameters", effort: "quick", abstain_bits: 0, head: "logits", attention: "uniform" }, seed: built.seed,
    network: built.network, encoder: built.encoder, classes: built.classes, tokens: kind, version: terms.version,
    claim: { ...terms.claim, bounds },
    certificate: {
      verdict: "undecided", reason: "built on a page, which evaluated every row with exact integers; byheart verify gives a verdict",
      rows: count, asked: count, agree, differ: count - agree, labels: count, contexts: count, fingerprint: fingerprintOf(built), size: sizeOf(built.network),
      guaranteed: bounds, guarantee: "not checked: built on a page", arithmetic: "exact integers, in a browser", left_out: {}, witness: null, proofs: {},
    },
    notes: [`built on a page: ${built.memory.lines.length} group(s), ${built.memory.folds} folds, ${built.memory.tried} lines tried`],
    selection: { sequence_columns: [], label_column: null, max_rows: null, conflicts: "error", label_type: "auto", missing: "error", header: null, encoding: null },
  };
  return jsonText({ byheart: 3, memory, sha256: sha256(new TextEncoder().encode(jsonText(memory))) });
}
