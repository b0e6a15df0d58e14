// Evaluates a network of the file format with integers of any length; docs/file-format.md defines the layers.
// A number is m·2^e as [m, e]. The stream is scaled by q, which is 1 unless a mean is not whole; returned
// numbers are fractions {n, d} of integers in lowest terms, d > 0.
const exactly = (({ network, encoder, classes, tokens: cutting }) => {
  const ZERO = [0n, 0];
  const parse = (w) => {
    if (typeof w === "number") return [BigInt(w), 0];
    const [, sign, digits, power] = /^(-?)(0x[0-9a-f]+)(?:p(-?\d+))?$/.exec(w);
    return [sign ? -BigInt(digits) : BigInt(digits), Number(power || 0)];
  };
  const add = ([a, e], [b, f]) =>
    a === 0n ? [b, f] : b === 0n ? [a, e] : e === f ? [a + b, e] : e < f ? [a + (b << BigInt(f - e)), e] : [(a << BigInt(e - f)) + b, f];
  const multiply = ([a, e], [b, f]) => [a * b, e + f];
  const relu = (x) => (x[0] > 0n ? x : ZERO);
  const tidy = ([m, e]) => {
    if (m === 0n) return ZERO;
    if (e > 0) return [m << BigInt(e), 0];
    while (e < 0 && (m & 1n) === 0n) { m >>= 1n; e++; }
    return [m, e];
  };
  const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a < 0n ? -a : a; };
  const fraction = (x, q) => {
    const [m, e] = tidy(x);
    if (q === 1n) return { n: m, d: 1n << BigInt(-e) };
    const n = e > 0 ? m << BigInt(e) : m, d = e < 0 ? q << BigInt(-e) : q, common = gcd(n, d) || 1n;
    return { n: n / common, d: d / common };
  };
  const plainIntegers = (numbers) => {
    const low = Math.min(...numbers.map((x) => x[1]));
    return numbers.map(([m, e]) => m << BigInt(e - low));
  };

  // Weights are parsed once.
  const matrix = (m) => m && m.rows.map((row) => row.map(([j, w]) => [j, parse(w)]));
  const vector = (v) => v && v.map(parse);
  const compiled = network.layers.map((l) => ({
    ...l,
    weight: matrix(l.weight), weight1: matrix(l.weight1), weight2: matrix(l.weight2), table: matrix(l.table),
    bias: vector(l.bias), bias1: vector(l.bias1), bias2: vector(l.bias2), stream: vector(l.stream),
    heads: l.heads && l.heads.map((h) => ({ value: matrix(h.value), output: matrix(h.output), key: matrix(h.key), query: matrix(h.query) })),
    columns: l.table && l.table.columns,
  }));
  const times = (rows, z) => rows.map((row) => row.reduce((sum, [j, w]) => add(sum, multiply(w, z[j])), ZERO));
  const withBias = (sums, bias, q) => (bias ? sums.map((x, i) => add(x, multiply(bias[i], [q, 0]))) : sums);

  // A token is a string, an integer (BigInt), a number with a fraction or an exponent (Number: the double nearest to it,
  // exactly), true, false, null, or a list of numbers. So 1, 1.0 and "1" are three tokens, as in JSON files of data.
  function readList(text) {
    const part = /\s*(?:([[\],])|("(?:[^"\\]|\\.)*")|(-?(?:0|[1-9]\d*))((?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null))/y;
    const next = () => part.exec(text) || fail("this is not a JSON list of tokens");
    const value = (found) => {
      const [, mark, string, whole, fraction, word] = found;
      if (string) return JSON.parse(string);
      if (whole) return fraction ? finite(Number(whole + fraction)) : BigInt(whole);
      if (word) return JSON.parse(word);
      if (mark !== "[") fail("this is not a JSON list of tokens");
      const items = [];
      let item = next();
      while (item[1] !== "]") {
        items.push(value(item));
        item = next();
        if (item[1] === ",") { item = next(); if (item[1] === "]") fail("this is not a JSON list of tokens"); }
        else if (item[1] !== "]") fail("this is not a JSON list of tokens");
      }
      return items;
    };
    const list = value(next());
    if (!Array.isArray(list) || text.slice(part.lastIndex).trim()) fail("this is not a JSON list of tokens");
    return list;
  }
  const fail = (words) => { throw new Error(words); };
  const finite = (x) => (Number.isFinite(x) ? x : fail("a number is too large"));
  const show = (token) => {
    if (Array.isArray(token)) return "[" + token.map(show).join(", ") + "]";
    return typeof token === "bigint" ? String(token) : JSON.stringify(token) + (Number.isInteger(token) ? ".0" : "");
  };

  // Texts to tokens, as the memory's data was cut: white space and words are Python's.
  const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000", WORD = "\\p{L}\\p{N}_";
  const pieces = (text, pattern) => text.match(new RegExp(pattern, "gu")) || [];
  const splitters = {
    words: (text) => pieces(text, "[^" + SPACE + "]+"),
    bytes: (text) => [...new TextEncoder().encode(text)].map(BigInt),
    integers: (text) => pieces(text, "[^," + SPACE + "]+").map((word) => (/^[+-]?[0-9]+$/.test(word) ? BigInt(word.replace("+", "")) : fail(show(word) + " is not a whole number"))),
    wordpunct: (text) => pieces(text, "[" + WORD + "]+|[^" + WORD + SPACE + "]+"),
    uncased: (text) => pieces(text.toLowerCase(), "[" + WORD + "]+|[^" + WORD + SPACE + "]"),
    characters: (text) => [...text],
    auto: (text) => [...text],
  };
  const looksListed = (text) => /^\s*\[/.test(text) && /\]\s*$/.test(text);
  function tokensOf(text) {
    const row = (looksListed(text) ? listOr(text) : cut(text)).map(typed), fill = cutting.pad === null ? null : valueOf(cutting.pad);
    if (!cutting.max_length) return row;
    return [...row.slice(0, cutting.max_length), ...Array(fill === null ? 0 : Math.max(0, cutting.max_length - row.length)).fill(fill)];
  }
  const listOr = (text) => {
    try { return readList(text); } catch (error) { if (!splitters[cutting.kind]) throw error; return cut(text); }
  };
  const cut = (text) => {
    if (cutting.kind === "json") fail("give the tokens as a JSON list: this memory was built from lists");
    return (splitters[cutting.kind] || (() => fail("this memory's own tokenizer is not on this page: give the tokens as a JSON list")))(text);
  };

  // Tokens become the type of the memory's data: texts are converted, values of the type stay.
  const converters = {
    auto: [() => true],
    str: [(token) => typeof token === "string"],
    int: [(token) => typeof token === "bigint", /^[+-]?[0-9]+$/, (text) => BigInt(text.replace("+", ""))],
    float: [(token) => typeof token === "number", /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/, (text) => finite(Number(text))],
    bool: [(token) => typeof token === "boolean", /^(true|false|1|0)$/i, (text) => /^(true|1)$/i.test(text)],
  };
  const typed = (token) => {
    const [fits, pattern, convert] = converters[cutting.type || "auto"];
    if (fits(token) || token === null || Array.isArray(token)) return token;
    return typeof token === "string" && pattern && pattern.test(token) ? convert(token) : fail(show(token) + " is not of the type " + cutting.type);
  };

  // Stored values: integers beyond 2^53 and floats are hexadecimal text in an object.
  const wholeOf = (x) => (typeof x === "string" ? parse(x)[0] : BigInt(x));
  const floatOf = (text) => {
    const [, sign, whole, fraction, power] = /^(-?)0x([01])\.([0-9a-f]+)p([+-]\d+)$/.exec(text);
    const size = Number(BigInt("0x" + whole + fraction)) * 2 ** (Number(power) - 4 * fraction.length);
    return sign ? -size : size;
  };
  const valueOf = (x) => (typeof x === "number" ? BigInt(x) : typeof x !== "object" || x === null ? x : x.integer ? wholeOf(x.integer) : floatOf(x.float));
  const keyOf = (token) => typeof token + ":" + (Object.is(token, -0) ? "-0" : String(token));
  const codes = encoder.symbols && new Map(encoder.symbols.map((s, k) => [keyOf(valueOf(s)), BigInt(k + 1)]));
  const padding = codes ? [ZERO] : encoder.pad_vector && encoder.pad_vector.map(([m, e]) => [wholeOf(m), e]);
  const dyadic = (x) => {
    if (typeof x === "bigint") return [x, 0];
    if (typeof x !== "number") fail("a coordinate must be a number, not " + show(x));
    let e = 0;
    while (!Number.isInteger(x)) { x *= 2; e--; }
    return [BigInt(x), e];
  };
  const pointOf = (token) => {
    if (codes) {
      const code = Array.isArray(token) ? undefined : codes.get(keyOf(token));
      return code === undefined ? fail("the memory has never seen the token " + show(token)) : [[code, 0]];
    }
    const point = (Array.isArray(token) ? token : [token]).map(dyadic);
    if (point.length !== encoder.dimension) fail("a token has " + encoder.dimension + " numbers");
    if (padding && point.every(([m, e], i) => m === padding[i][0] && e === padding[i][1])) fail("this vector is the one that pads short rows");
    return point;
  };
  function encode(row) {
    if (!row.length) fail("give at least one token");
    if (row.length > encoder.length) fail("no memorized row has more than " + encoder.length + " tokens");
    const pads = ["next-token", "seq-to-seq"].includes(encoder.task);
    if (pads && !encoder.padded && row.length !== encoder.length) fail("every memorized row has " + encoder.length + " tokens");
    const points = row.map(pointOf);
    while (pads && points.length < encoder.length) points.unshift(padding);
    return encoder.positions ? points.map((p, k) => [...p, [BigInt(k), 0]]) : points;
  }

  const act = {
    affine: (s, l) => { s.Z = s.Z.map((z) => { const sums = withBias(times(l.weight, z), l.bias, s.q); return l.relu ? sums.map(relu) : sums; }); },
    threshold: (s, l) => { s.Z = s.Z.map((z) => withBias(times(l.weight, z), l.bias, s.q).map(([m]) => (m >= 0n ? [s.q, 0] : ZERO))); },
    residual: (s, l) => {
      s.active = [];
      s.Z = s.Z.map((z) => {
        const hidden = withBias(times(l.weight1, z), l.bias1, s.q).map(relu);
        s.active.push(hidden.map(([m]) => m > 0n));
        return withBias(times(l.weight2, hidden), l.bias2, s.q).map((x, i) => add(z[i], x));
      });
    },
    embedding: (s, l) => {
      s.Z = s.Z.map((z) => {
        const [id, e] = tidy(z.reduce((sum, x, i) => add(sum, multiply([BigInt(l.strides[i]), 0], x)), ZERO));
        if (e || id < 0n || id >= BigInt(l.table.length)) fail("a token has no row in the embedding table");
        const out = Array.from({ length: l.columns }, () => ZERO);
        l.table[id].forEach(([j, w]) => { out[j] = w; });
        return out;
      });
    },
    pool: (s) => { s.Z = [s.Z.reduce((a, b) => a.map((x, i) => add(x, b[i])))]; s.hub = null; },
    flatten: (s, l) => {
      if (s.Z.length !== l.tokens) fail("the network reads exactly " + l.tokens + " tokens");
      s.Z = [s.Z.flat()];
      s.hub = null;
    },
    "global-token": (s, l) => {
      const hub = l.stream.map((w) => multiply(w, [s.q, 0]));
      s.hub = l.place || "end";
      s.Z = s.hub === "start" ? [hub, ...s.Z] : [...s.Z, hub];
    },
    attention: attend,
  };
  const allowed = {
    full: () => true,
    causal: (j, k) => j <= k,
    "star-in": (j, k, n) => k === n - 1 || j === k,
    "star-out": (j, k, n) => j === k || (k < n - 1 && j === n - 1),
  };
  function attend(s, l) {
    const n = s.Z.length, shares = [], old = s.q;
    s.heads = [];
    for (const head of l.heads) {
      const V = s.Z.map((z) => times(head.output, times(head.value, z)));
      const K = head.key && s.Z.map((z) => times(head.key, z)), Q = head.query && s.Z.map((z) => times(head.query, z));
      for (let k = 0; k < n; k++) {
        let keys = [...Array(n).keys()].filter((j) => allowed[l.pattern](j, k, n));
        if (K && l.kind !== "uniform") {
          const scores = plainIntegers(keys.map((j) => K[j].reduce((sum, x, i) => add(sum, multiply(x, Q[k][i])), ZERO)));
          const best = scores.reduce((a, b) => (a > b ? a : b));
          if (l.kind === "softmax" && scores.some((x) => x !== best)) fail("softmax of unequal scores is not rational; this page cannot follow it");
          keys = keys.filter((_, i) => scores[i] === best);
        }
        s.heads.push({ k, keys, values: keys.map((j) => V[j].map((x) => fraction(x, old))) });
        shares.push([k, keys.map((j) => V[j]).reduce((a, b) => a.map((x, i) => add(x, b[i]))), BigInt(keys.length)]);
      }
    }
    const all = shares.map((x) => x[2]).reduce((a, b) => (a / gcd(a, b)) * b, 1n);
    s.Z = s.Z.map((z) => z.map((x) => multiply(x, [all, 0])));
    for (const [k, sum, count] of shares) s.Z[k] = s.Z[k].map((x, i) => add(x, multiply(sum[i], [all / count, 0])));
    s.q *= all;
    const common = s.Z.reduce((g, z) => z.reduce((h, [m]) => gcd(h, m), g), s.q);
    if (common > 1n) { s.Z = s.Z.map((z) => z.map(([m, e]) => [m / common, e])); s.q /= common; }
  }

  function classOf(out, q) {
    let index = -1n;
    if (network.readout.decode === "value") {
      const [m, e] = tidy(out[0]);
      if (e === 0 && m % q === 0n) index = m / q - BigInt(network.readout.offset);
    } else {
      const plain = plainIntegers(out), best = plain.reduce((a, b) => (a > b ? a : b));
      if (plain.filter((x) => x === best).length === 1) index = BigInt(plain.indexOf(best));
    }
    return index >= 0n && index < BigInt(network.readout.classes) ? classes[Number(index)] : null;
  }

  // answers: one per read token; for each of them `traces`: the stream after every layer, and `active`: which hidden
  // units fired in residual blocks. `states`: the streams of all tokens. `inputs`: the encoder's vectors of the row;
  // `heads`: for every layer of attention which tokens each token attends to, and their contributions.
  function evaluate(row) {
    const s = { Z: encode(row), q: 1n, hub: null }, states = [], inputs = s.Z.map((z) => z.map((x) => fraction(x, 1n)));
    for (const l of compiled) {
      s.active = s.heads = null;
      act[l.layer](s, l);
      s.Z = s.Z.map((z) => z.map(tidy));
      states.push({ Z: s.Z.map((z) => z.map((x) => fraction(x, s.q))), hub: s.hub, active: s.active, heads: s.heads });
    }
    const inside = (all, hub) => (hub === "start" ? all.slice(1) : hub === "end" ? all.slice(0, -1) : all);
    const own = ({ Z, hub }) => inside(Z, hub);
    const final = own(states[states.length - 1]), outputs = inside(s.Z, s.hub);
    const first = network.read === "each" ? final.length - row.length : final.length - 1;
    const places = final.map((_, k) => k).filter((k) => k >= first);
    // A token keeps its position while the row has its length; a pooled or flattened row is one token.
    const follow = (all, k) => (network.read !== "each" ? all[all.length - 1] : all.length === final.length ? all[k] : all[Math.min(k, all.length - 1)]);
    const traces = places.map((k) => states.map((state) => follow(own(state), k)));
    const active = places.map((k) => states.map((state) => state.active && follow(inside(state.active, state.hub), k)));
    const heads = states.map((state) => state.heads && state.heads.map((head) => ({ ...head, hub: state.hub })));
    return { answers: places.map((k) => classOf(outputs[k], s.q)), places, traces, active, states: states.map(own), inputs, heads };
  }
  // One linear piece of a block on a stream of one number: h <- slope·h + constant while these units fire.
  function piece(layer, fired) {
    const l = compiled[layer];
    let [slope, constant] = [[1n, 0], l.bias2 ? l.bias2[0] : ZERO];
    l.weight2[0].forEach(([j, out]) => {
      if (!fired[j]) return;
      l.weight1[j].forEach(([, w]) => { slope = add(slope, multiply(out, w)); });
      if (l.bias1) constant = add(constant, multiply(out, l.bias1[j]));
    });
    return { slope: fraction(slope, 1n), constant: fraction(constant, 1n) };
  }
  // The addend of one unit of such a block where it acts, and whether it acts to the right of its bend.
  function unit(layer, k) {
    const l = compiled[layer], found = l.weight2[0].find(([j]) => j === k), out = found ? found[1] : ZERO, w = l.weight1[k].length ? l.weight1[k][0][1] : ZERO;
    return { slope: fraction(multiply(out, w), 1n), constant: fraction(l.bias1 ? multiply(out, l.bias1[k]) : ZERO, 1n) };
  }
  const rising = (layer, k) => compiled[layer].weight1[k].length > 0 && compiled[layer].weight1[k][0][1][0] > 0n;
  // Where the units of such a block bend it: -bias / weight, in the order of the units.
  const bends = (layer) => compiled[layer].weight1.map((row, j) => {
    const w = row.length ? row[0][1] : ZERO, b = compiled[layer].bias1 ? compiled[layer].bias1[j] : ZERO;
    if (!w[0]) return null;
    const low = Math.min(w[1], b[1]), over = (x) => x[0] << BigInt(x[1] - low);
    return fraction([w[0] < 0n ? over(b) : -over(b), 0], w[0] < 0n ? -over(w) : over(w));
  });
  const weightsOf = (layer) => { // of an affine layer: rows of fractions, and biases
    const l = compiled[layer], columns = network.layers[layer].weight.columns;
    const rows = l.weight.map((row) => { const out = Array(columns).fill({ n: 0n, d: 1n }); row.forEach(([j, w]) => { out[j] = fraction(w, 1n); }); return out; });
    return { rows, bias: l.bias ? l.bias.map((b) => fraction(b, 1n)) : null };
  };
  const factorOf = (layer) => { // of the only head of a layer of attention on a stream of one number: W_O·W_V
    const [head] = compiled[layer].heads;
    return fraction(times(head.output, times(head.value, [[1n, 0]]))[0], 1n);
  };
  return { tokensOf, evaluate, show, piece, unit, rising, bends, weightsOf, factorOf };
});
