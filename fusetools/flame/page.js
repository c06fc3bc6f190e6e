"use strict";
(() => {

// ---- The stacks -------------------------------------------------------------------------------------------------

const data = JSON.parse(document.getElementById("data").textContent);

/** The numbers that html.py wrote as base64, in an array of the given type. */
function numbers(base64, Type) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Type(bytes.buffer);
}

const ALL = data.frames.length;             // the frame of the root
const frames = [...data.frames, "all"];
const bare = (name) => name.replace(/_\[[kijw]\]$/, "");
const nameOf = (frame) => bare(frames[frame]);
const compared = data.before !== "";

// A tree is {n, frame, parent, before, after}: for each node, callers before callees and callees side by side, its
// frame, its caller (-1: none) and the weight of the stacks that end in it. Node 0 is the root. `lay` adds the rest.

function read() {
  const frame = numbers(data.frame, Int32Array);
  const parent = numbers(data.parent, Int32Array);
  const after = numbers(data.after, Float64Array);
  const before = compared ? numbers(data.before, Float64Array) : new Float64Array(after.length);
  const n = frame.length + 1;
  const tree = empty(n);
  tree.frame[0] = ALL;
  tree.parent[0] = -1;
  tree.frame.set(frame, 1);
  tree.after.set(after, 1);
  tree.before.set(before, 1);
  for (let i = 1; i < n; i++) tree.parent[i] = parent[i - 1] + 1;
  return sum(tree);
}

function empty(n) {
  return {
    n,
    frame: new Int32Array(n),
    parent: new Int32Array(n),
    before: new Float64Array(n),
    after: new Float64Array(n),
  };
}

/** Adds allBefore and allAfter (a node with all below it), depth, end (the node after all below it), rows. */
function sum(tree) {
  const { n, parent } = tree;
  const allBefore = (tree.allBefore = tree.before.slice());
  const allAfter = (tree.allAfter = tree.after.slice());
  const depth = (tree.depth = new Int32Array(n));
  const end = (tree.end = new Int32Array(n));
  tree.rows = 1;
  for (let i = 1; i < n; i++) {
    depth[i] = depth[parent[i]] + 1;
    if (depth[i] >= tree.rows) tree.rows = depth[i] + 1;
  }
  for (let i = n - 1; i >= 0; i--) {
    if (end[i] === 0) end[i] = i + 1;
    const p = parent[i];
    if (p < 0) continue;
    allBefore[p] += allBefore[i];
    allAfter[p] += allAfter[i];
    if (end[p] < end[i]) end[p] = end[i];
  }
  return tree;
}

/** Adds x and w, where each node is drawn: from 0 to the root's w, in units of weight. */
function lay(tree) {
  const w = (tree.w = state.width === "before" ? tree.allBefore : tree.allAfter);
  const x = (tree.x = new Float64Array(tree.n));
  const next = new Float64Array(tree.n);
  for (let i = 1; i < tree.n; i++) {
    const p = tree.parent[i];
    x[i] = next[p];
    next[p] += w[i];
    next[i] = x[i];
  }
  return tree;
}

let ranks = null;

/** The place of each frame by name. */
function rank() {
  if (ranks) return ranks;
  const order = frames.map((_, i) => i).sort((a, b) => (frames[a] < frames[b] ? -1 : frames[a] > frames[b] ? 1 : 0));
  ranks = new Int32Array(frames.length);
  order.forEach((frame, place) => (ranks[frame] = place));
  return ranks;
}

/** A tree in the making: stacks are added from its root, equal ones come together. */
class Growing {
  constructor(root) {
    this.n = 0;
    this.tree = empty(1024);
    this.slots = new Int32Array(4096).fill(-1);
    this.create(-1, root);
  }

  create(parent, frame) {
    const { tree, n } = this;
    if (n === tree.n) {
      const bigger = empty(n * 2);
      for (const name of ["frame", "parent", "before", "after"]) bigger[name].set(tree[name]);
      this.tree = bigger;
    }
    this.tree.frame[n] = frame;
    this.tree.parent[n] = parent;
    this.n++;
    return n;
  }

  slot(parent, frame) {
    const mask = this.slots.length - 1;
    let hash = Math.imul(parent, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b);
    hash = (hash ^ (hash >>> 15)) & mask;
    for (;;) {
      const found = this.slots[hash];
      if (found < 0 || (this.tree.parent[found] === parent && this.tree.frame[found] === frame)) return hash;
      hash = (hash + 1) & mask;
    }
  }

  /** The callee `frame` of a node. */
  callee(parent, frame) {
    let slot = this.slot(parent, frame);
    if (this.slots[slot] >= 0) return this.slots[slot];
    const node = this.create(parent, frame);
    this.slots[slot] = node;
    if (this.n * 2 > this.slots.length) {
      this.slots = new Int32Array(this.slots.length * 2).fill(-1);
      for (let i = 1; i < this.n; i++) this.slots[this.slot(this.tree.parent[i], this.tree.frame[i])] = i;
    }
    return node;
  }

  add(node, before, after) {
    this.tree.before[node] += before;
    this.tree.after[node] += after;
  }

  /** The tree in its final order, callees by name. */
  done() {
    const { tree: from, n } = this;
    const place = rank();
    const count = new Int32Array(frames.length + 1);
    for (let i = 0; i < n; i++) count[place[from.frame[i]] + 1]++;
    for (let i = 0; i < frames.length; i++) count[i + 1] += count[i];
    const byName = new Int32Array(n);
    for (let i = 0; i < n; i++) byName[count[place[from.frame[i]]]++] = i;
    // Lists of callees, filled from the last name to the first.
    const first = new Int32Array(n).fill(-1);
    const sibling = new Int32Array(n).fill(-1);
    for (let k = n - 1; k >= 0; k--) {
      const i = byName[k];
      const p = from.parent[i];
      if (p < 0) continue;
      sibling[i] = first[p];
      first[p] = i;
    }
    const tree = empty(n);
    const moved = new Int32Array(n);
    let at = 0;
    for (let i = 0; i >= 0; ) {
      moved[i] = at;
      tree.frame[at] = from.frame[i];
      tree.parent[at] = i ? moved[from.parent[i]] : -1;
      tree.before[at] = from.before[i];
      tree.after[at] = from.after[i];
      at++;
      if (first[i] >= 0) {
        i = first[i];
      } else {
        while (i > 0 && sibling[i] < 0) i = from.parent[i];
        i = i > 0 ? sibling[i] : -1;
      }
    }
    return sum(tree);
  }
}

/** Only the stacks through a frame. */
function focused(tree, frame) {
  const through = new Uint8Array(tree.n);
  const kept = new Uint8Array(tree.n);
  for (let i = 0; i < tree.n; i++) {
    const p = tree.parent[i];
    through[i] = kept[i] = tree.frame[i] === frame || (p >= 0 && through[p]) ? 1 : 0;
  }
  kept[0] = 1;
  for (let i = tree.n - 1; i > 0; i--) if (kept[i]) kept[tree.parent[i]] = 1;
  const moved = new Int32Array(tree.n);
  let n = 0;
  for (let i = 0; i < tree.n; i++) if (kept[i]) moved[i] = n++;
  const out = empty(n);
  for (let i = 0; i < tree.n; i++) {
    if (!kept[i]) continue;
    const at = moved[i];
    out.frame[at] = tree.frame[i];
    out.parent[at] = i ? moved[tree.parent[i]] : -1;
    out.before[at] = through[i] ? tree.before[i] : 0;
    out.after[at] = through[i] ? tree.after[i] : 0;
  }
  return sum(out);
}

/** Without a frame: what it called is called by its caller. */
function hidden(tree, frame) {
  const out = new Growing(tree.frame[0]);
  const moved = new Int32Array(tree.n);
  out.add(0, tree.before[0], tree.after[0]);
  for (let i = 1; i < tree.n; i++) {
    const caller = moved[tree.parent[i]];
    moved[i] = tree.frame[i] === frame ? caller : out.callee(caller, tree.frame[i]);
    out.add(moved[i], tree.before[i], tree.after[i]);
  }
  return out.done();
}

// Trees from the leaves can have far more nodes than the tree itself: this many are made, then stacks are cut.
const MOST = 6e6;

/** How many frames of each stack can be turned without exceeding MOST. */
function affordable(depths) {
  const count = [];
  for (const depth of depths) count[depth] = (count[depth] || 0) + 1;
  let stacks = depths.length;
  let nodes = 0;
  for (let depth = 0; depth < count.length; depth++) {
    if (nodes + stacks > MOST) return depth;
    nodes += stacks;
    stacks -= count[depth] || 0;
  }
  return Infinity;
}

/** From some nodes to their callers, merged from there; `weigh` gives (before, after) of each. */
function turned(tree, root, nodes, before, after, itself) {
  const most = affordable(nodes.map((i) => tree.depth[i]));
  const out = new Growing(root);
  for (const node of nodes) {
    let at = 0;
    let left = most;
    for (let i = itself ? node : tree.parent[node]; i > 0 && left-- > 0; i = tree.parent[i]) at = out.callee(at, tree.frame[i]);
    out.add(at, before[node], after[node]);
  }
  const done = out.done();
  done.cut = most;
  return done;
}

function reversed(tree) {
  const leaves = [];
  for (let i = 1; i < tree.n; i++) if (tree.before[i] || tree.after[i]) leaves.push(i);
  return turned(tree, ALL, leaves, tree.before, tree.after, true);
}

/** The nodes of a frame that are below no other of it: their sum counts nothing twice. */
function outermost(tree, frame) {
  const nodes = [];
  for (let i = 0; i < tree.n; ) {
    if (tree.frame[i] === frame) {
      nodes.push(i);
      i = tree.end[i];
    } else i++;
  }
  return nodes;
}

function callers(tree, frame) {
  return turned(tree, frame, outermost(tree, frame), tree.allBefore, tree.allAfter, false);
}

function callees(tree, frame) {
  const out = new Growing(frame);
  const moved = new Int32Array(tree.n);
  for (const top of outermost(tree, frame)) {
    out.add(0, tree.before[top], tree.after[top]);
    moved[top] = 0;
    for (let i = top + 1; i < tree.end[top]; i++) {
      moved[i] = out.callee(moved[tree.parent[i]], tree.frame[i]);
      out.add(moved[i], tree.before[i], tree.after[i]);
    }
  }
  return out.done();
}

// ---- State: what is shown, kept in the address -----------------------------------------------------------------------

const FRESH = {
  search: "",
  zoom: [0, 0],               // a node of each pane
  inverted: data.inverted,
  reversed: data.reversed,
  sandwich: "",               // a frame
  focus: [],                  // frames
  hide: [],
  colour: compared ? "difference" : data.kinds.length ? "kind" : "name",
  normalise: data.normalise,
  width: "after",
  theme: "",                  // "": the system's
};
const COLOURINGS = [...(compared ? ["difference"] : []), ...(data.kinds.length ? ["kind"] : []), "name"];

let state = { ...FRESH };

function toHash(s) {
  const query = new URLSearchParams();
  if (s.search) query.set("search", s.search);
  for (const frame of s.focus) query.append("focus", frame);
  for (const frame of s.hide) query.append("hide", frame);
  if (s.sandwich) query.set("sandwich", s.sandwich);
  for (const key of ["inverted", "reversed", "normalise"]) if (s[key] !== FRESH[key]) query.set(key, s[key] ? "1" : "0");
  for (const key of ["colour", "width", "theme"]) if (s[key] !== FRESH[key]) query.set(key, s[key]);
  if (s.zoom[0] || s.zoom[1]) query.set("zoom", s.zoom[1] ? s.zoom.join(" ") : String(s.zoom[0]));
  return query.toString();
}

function fromHash(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const s = { ...FRESH };
  const among = (key, all) => (all.includes(query.get(key)) ? query.get(key) : FRESH[key]);
  s.search = query.get("search") || "";
  s.focus = query.getAll("focus");
  s.hide = query.getAll("hide");
  s.sandwich = query.get("sandwich") || "";
  for (const key of ["inverted", "reversed", "normalise"]) if (query.has(key)) s[key] = query.get(key) === "1";
  s.colour = among("colour", COLOURINGS);
  s.width = compared ? among("width", ["before", "after"]) : "after";
  s.theme = among("theme", ["dark", "light"]);
  const zoom = (query.get("zoom") || "0").split(" ").map(Number);
  s.zoom = [0, 1].map((i) => (Number.isInteger(zoom[i]) && zoom[i] > 0 ? zoom[i] : 0));
  return s;
}

let written = null;           // the hash that we wrote last

/** Changes the state; a step of its own in the browser's history where `step` says so. */
function go(changes, step = false) {
  state = { ...state, ...changes };
  written = "#" + toHash(state);
  if (step) location.hash = written;
  else location.replace(written);
  show();
}

addEventListener("hashchange", () => {
  if (location.hash === written || (location.hash === "" && written === "#")) return;
  written = location.hash;
  state = fromHash(location.hash);
  show();
});

// ---- Panes: what is drawn where ----------------------------------------------------------------------------------------

const base = read();
const frameOf = new Map(frames.slice(0, ALL).map((frame, i) => [frame, i]));
let panes = [];               // {tree, up, at, from, to}: grows upwards?, its root's row, the weights in sight
let rows = 1;
let whole = 0;                // the weight that shares are of
let scale = 1;                // of weights before
let selected = null;          // {pane, node}
let built = "";

/** Makes the panes anew where the state asks for other trees than those there. */
function build() {
  const wanted = JSON.stringify([state.focus, state.hide, state.reversed, state.sandwich]);
  if (wanted !== built) {
    built = wanted;
    let tree = base;
    for (const frame of state.hide) tree = hidden(tree, frameOf.get(frame) ?? -1);
    for (const frame of state.focus) tree = focused(tree, frameOf.get(frame) ?? -1);
    if (state.sandwich) {
      const frame = frameOf.get(state.sandwich) ?? ALL;
      panes = [{ tree: callees(tree, frame) }, { tree: callers(tree, frame), ownRoot: false }];
    } else {
      panes = [{ tree: state.reversed ? reversed(tree) : tree }];
    }
    for (const pane of panes) pane.ownRoot ??= true;
    selected = null;
    found = null;
  }
  const total = (all) => base[all][0];
  scale = state.normalise && total("allBefore") ? total("allAfter") / total("allBefore") : 1;
  whole = total(state.width === "before" ? "allBefore" : "allAfter");
  const above = panes.length > 1 ? panes[1].tree.rows - 1 : 0;
  rows = panes[0].tree.rows + above;
  panes.forEach((pane, i) => {
    lay(pane.tree);
    pane.up = state.inverted === (i === 1);
    pane.at = state.inverted ? above : rows - 1 - above;
    const node = state.zoom[i] < pane.tree.n ? state.zoom[i] : 0;
    pane.zoom = node;
    pane.goal = [pane.tree.x[node], pane.tree.x[node] + pane.tree.w[node]];
  });
}

const rowOf = (pane, node) => pane.at + (pane.up ? -1 : 1) * pane.tree.depth[node];

// ---- Search ----------------------------------------------------------------------------------------------------------

let found = null;             // {search, wrong, frames, panes: [{own, below}], list, share}

/** Looks up the search in all names, and where they are in the panes. */
function find() {
  if (found && found.search === state.search && found.width === state.width) return;
  const last = found;
  found = { search: state.search, width: state.width, wrong: "", panes: [], list: [], share: 0, at: -1 };
  if (!state.search) return;
  let pattern;
  try {
    pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "u" : "iu");
  } catch {
    try {
      pattern = new RegExp(state.search, /[A-Z]/.test(state.search) ? "" : "i");
    } catch {
      // Half written: what was found before stays.
      if (last && last.panes.length === panes.length) found = { ...last, search: state.search };
      found.wrong = "not a regular expression";
      return;
    }
  }
  const matching = new Uint8Array(frames.length);
  for (let i = 0; i < ALL; i++) matching[i] = pattern.test(nameOf(i)) ? 1 : 0;
  panes.forEach((pane, which) => {
    const { tree } = pane;
    const own = new Uint8Array(tree.n);
    const below = new Uint8Array(tree.n);
    for (let i = 0; i < tree.n; i++) own[i] = matching[tree.frame[i]];
    for (let i = tree.n - 1; i > 0; i--) if (own[i] || below[i]) below[tree.parent[i]] = 1;
    found.panes.push({ own, below });
    // Matches within matches are counted once, with the outermost.
    for (let i = 0; i < tree.n; ) {
      if (own[i] && tree.w[i] > 0 && (i > 0 || pane.ownRoot)) {
        found.list.push({ pane: which, node: i });
        if (which === 0) found.share += tree.w[i];
        i = tree.end[i];
      } else i++;
    }
  });
  found.list.sort((a, b) => panes[b.pane].tree.w[b.node] - panes[a.pane].tree.w[a.node]);
}

function step(by) {
  find();
  const { list } = found;
  if (!list.length) return;
  found.at = found.at < 0 && by < 0 ? list.length - 1 : (found.at + by + list.length) % list.length;
  const match = list[found.at];
  const pane = panes[match.pane];
  const { tree } = pane;
  selected = match;
  // Zoom out until it is in sight, in where it would be too narrow to be seen.
  let node = pane.zoom;
  while (node > 0 && !(tree.x[match.node] >= tree.x[node] && tree.x[match.node] + tree.w[match.node] <= tree.x[node] + tree.w[node])) {
    node = tree.parent[node];
  }
  if ((tree.w[match.node] / tree.w[node]) * size.width < 24) node = match.node;
  zoom(match.pane, node);
  reveal(match);
}

// ---- Colours ---------------------------------------------------------------------------------------------------------

const THEMES = {
  light: { paper: [255, 255, 255], ink: "#101215", many: "#c9ccd3", root: [222, 224, 229], dim: 1, select: "#0b0c0e" },
  dark: { paper: [21, 23, 27], ink: "#e8eaed", many: "#4b505a", root: [62, 67, 76], dim: 0.78, select: "#ffffff" },
};
const FOUND = [230, 0, 230];
const MORE = [226, 74, 58];
const LESS = [66, 116, 226];
const NO_KIND = [205, 205, 205];

const css = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;
const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);

/** Black or white, whichever can be read better on a colour (WCAG's relative luminance). */
function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function hash(text) {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}

const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

const palettes = new Map();

/** The colours of frames that were drawn already, for a theme and a colouring. */
function palette(theme, colouring) {
  const key = `${theme} ${colouring}`;
  if (!palettes.has(key)) palettes.set(key, []);
  return palettes.get(key);
}

/** A frame's [fill, ink, faded fill, faded ink]. */
function colourOf(frame, theme, colouring) {
  const { dim, paper, root } = THEMES[theme];
  if (frame === ALL) return paint(root, paper);
  const seed = hash(nameOf(frame));
  const kind = data.kind[frame] ?? -1;
  let rgb = [225 + (seed % 30), 95 + ((seed >>> 5) % 125), 50 + ((seed >>> 12) % 40)];
  if (colouring === "kind") {
    const shade = 0.92 + (seed % 17) / 100;
    rgb = kind < 0 ? NO_KIND : rgbOf(data.kinds[kind].colour).map((v) => Math.min(255, v * shade));
  }
  return paint(rgb.map((v) => v * dim), paper);
}

const paint = (rgb, paper) => {
  const faded = mix(rgb, paper, 0.72);
  return [css(rgb), inkOn(rgb), css(faded), inkOn(faded)];
};

/** Blue to red in 81 steps: how much less or more than before. */
const differences = new Map();
function difference(theme, tree, node) {
  if (!differences.has(theme)) {
    const { paper, dim } = THEMES[theme];
    const even = theme === "dark" ? [74, 78, 87] : [232, 233, 236];
    const shades = [];
    for (let i = -40; i <= 40; i++) {
      const rgb = mix(even, (i < 0 ? LESS : MORE).map((v) => v * (0.5 + dim / 2)), Math.abs(i) / 40);
      shades.push(paint(rgb, paper));
    }
    differences.set(theme, shades);
  }
  return differences.get(theme)[40 + Math.round(40 * change(tree, node))];
}

/** -1 (gone) to 1 (new). */
function change(tree, node) {
  const before = tree.allBefore[node] * scale;
  const after = tree.allAfter[node];
  const most = Math.max(before, after);
  return most > 0 ? (after - before) / most : 0;
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const themeNow = () => state.theme || (systemDark.matches ? "dark" : "light");

// ---- Drawing ---------------------------------------------------------------------------------------------------------

const ROW = 18;
const FONT = 12;
const FAMILY = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const THIN = 1.5;             // narrower frames are drawn together

const graph = document.getElementById("graph");
const context = graph.getContext("2d", { alpha: false });
const scroll = document.getElementById("scroll");
const spacer = document.getElementById("spacer");
const size = { width: 0, height: 0, ratio: 0 };

context.font = `${FONT}px ${FAMILY}`;
const letter = context.measureText("M".repeat(32)).width / 32;

/** As much of a name as fits, by width where its letters may be wider than others. */
function fit(target, name, width) {
  const most = Math.floor(width / letter);
  if (most < 2) return "";
  if (/^[\x20-\x7e]*$/.test(name)) return name.length <= most ? name : most < 4 ? "" : name.slice(0, most - 1) + "…";
  if (target.measureText(name).width <= width) return name;
  const letters = [...name.slice(0, most)];
  while (letters.length && target.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.length > 1 ? letters.join("") + "…" : "";
}

/** Frames of a row that are too narrow to be told apart are drawn as one: draw(depth, left, right). */
class Run {
  constructor(rows, draw) {
    this.left = new Float64Array(rows).fill(NaN);
    this.right = new Float64Array(rows);
    this.draw = draw;
  }

  add(depth, left, right) {
    if (left > this.right[depth] + 0.5) this.flush(depth);
    if (Number.isNaN(this.left[depth])) this.left[depth] = left;
    this.right[depth] = right;
  }

  flush(depth) {
    if (Number.isNaN(this.left[depth])) return;
    this.draw(depth, this.left[depth], this.right[depth]);
    this.left[depth] = NaN;
  }

  end() {
    for (let depth = 0; depth < this.left.length; depth++) this.flush(depth);
  }
}

/**
 * Draws rows [first, last] of the panes, row `first` at the top; `width` pixels wide.
 * Nodes that are too narrow to be seen are skipped with all below them, so that the time depends on what is seen.
 */
function paintRows(target, width, first, last, theme) {
  const look = THEMES[theme];
  target.fillStyle = css(look.paper);
  target.fillRect(0, 0, width, (last - first + 1) * ROW);
  target.font = `${FONT}px ${FAMILY}`;
  target.textBaseline = "middle";
  const colours = palette(theme, state.colour);
  const differ = state.colour === "difference";
  const searching = found.panes.length > 0;
  const foundPaint = paint(FOUND, look.paper);
  const labels = [];
  let fill = "";
  const box = (x, y, w, colour) => {
    if (colour !== fill) target.fillStyle = fill = colour;
    target.fillRect(x, y, w, ROW - 1);
  };
  panes.forEach((pane, which) => {
    const { n, x, w, end, depth, frame } = pane.tree;
    const [from, to] = [pane.from, pane.to];
    if (!(to > from)) return;
    const perWeight = width / (to - from);
    const { own, below } = found.panes[which] || {};
    // Of each row, the narrow frames side by side that are not drawn yet, and those found among them.
    const many = new Run(pane.tree.rows, (d, l, r) => box(l, yOf(d), Math.max(1, r - l), look.many));
    const hits = new Run(pane.tree.rows, (d, l, r) => narrow.push(Math.min(l, width - 1), yOf(d), Math.max(1, r - l)));
    const narrow = [];
    const yOf = (d) => (pane.at + (pane.up ? -d : d) - first) * ROW;
    for (let i = 0; i < n; ) {
      const d = depth[i];
      const left = (x[i] - from) * perWeight;
      const right = left + w[i] * perWeight;
      if (right <= 0 || left >= width || w[i] <= 0) {
        i = end[i];
        continue;
      }
      const row = pane.at + (pane.up ? -d : d);
      const inSight = row >= first && row <= last && (d > 0 || pane.ownRoot);
      if (right - left < THIN) {
        if (inSight) (searching && own[i] ? hits : many).add(d, left, right);
        // Below a frame that is far too narrow, one that was found is still shown.
        if (right - left < 0.25 && !(searching && below[i])) i = end[i];
        else i++;
        continue;
      }
      if (inSight) {
        const l = Math.max(0, left);
        const wide = Math.min(width, right) - l;
        const y = (row - first) * ROW;
        const matches = searching && own[i];
        const paints = matches ? foundPaint
          : differ ? difference(theme, pane.tree, i)
          : (colours[frame[i]] ??= colourOf(frame[i], theme, state.colour));
        const faded = searching && !matches ? 2 : 0;
        box(l, y, wide > 3 ? wide - 1 : wide - 0.25, paints[faded]);
        if (wide > 20) labels.push(l + 3, y, wide - 7, i, which, paints[faded + 1]);
      }
      i++;
      // Rows that cannot be seen are not walked through.
      if (pane.up ? row - 1 < first : row + 1 > last) i = end[i - 1];
    }
    many.end();
    hits.end();
    for (let k = 0; k < narrow.length; k += 3) box(narrow[k], narrow[k + 1], narrow[k + 2], foundPaint[0]);
  });
  for (let k = 0; k < labels.length; k += 6) {
    const { tree } = panes[labels[k + 4]];
    const node = labels[k + 3];
    let name = nameOf(tree.frame[node]);
    if (differ) {
      const much = change(tree, node);
      if (Math.abs(much) >= 0.01) name = (much > 0 ? "+ " : "- ") + name;
    }
    const text = fit(target, name, labels[k + 2]);
    if (!text) continue;
    if (fill !== labels[k + 5]) target.fillStyle = fill = labels[k + 5];
    target.fillText(text, labels[k], labels[k + 1] + ROW / 2);
  }
  if (selected) {
    const pane = panes[selected.pane];
    const { x, w } = pane.tree;
    const perWeight = width / (pane.to - pane.from);
    const left = Math.max(0, (x[selected.node] - pane.from) * perWeight);
    const right = Math.min(width, (x[selected.node] + w[selected.node] - pane.from) * perWeight);
    if (right > left) {
      target.strokeStyle = look.select;
      target.lineWidth = 2;
      target.strokeRect(left + 1, (rowOf(pane, selected.node) - first) * ROW, Math.max(1, right - left - 3), ROW - 2);
    }
  }
}

let scheduled = 0;
let moving = null;            // {start, from: [[from, to], …]}: on the way to where the panes are to be

function draw() {
  if (!scheduled) scheduled = requestAnimationFrame(drawNow);
}

function drawNow(now) {
  scheduled = 0;
  if (moving) {
    moving.start ??= now;
    const t = Math.min(1, (now - moving.start) / 160);
    const eased = 1 - (1 - t) ** 3;
    panes.forEach((pane, i) => {
      [pane.from, pane.to] = [0, 1].map((k) => moving.from[i][k] + (pane.goal[k] - moving.from[i][k]) * eased);
    });
    if (t < 1) draw();
    else moving = null;
  }
  const width = scroll.clientWidth;
  const height = Math.min(scroll.clientHeight, rows * ROW);
  const ratio = devicePixelRatio;
  if (width !== size.width || height !== size.height || ratio !== size.ratio) {
    Object.assign(size, { width, height, ratio });
    graph.width = Math.round(width * ratio);
    graph.height = Math.round(height * ratio);
    graph.style.width = `${width}px`;
    graph.style.height = `${height}px`;
  }
  const top = scroll.scrollTop;
  const first = Math.floor(top / ROW);
  const last = Math.min(rows - 1, Math.floor((top + height) / ROW));
  context.setTransform(ratio, 0, 0, ratio, 0, Math.round((first * ROW - top) * ratio));
  paintRows(context, width, first, last, themeNow());
}

/** Takes the panes to where they are to be; at once where motion is not wanted, or there is nothing to move from. */
function move(animate) {
  if (animate && panes.every((pane) => pane.to > pane.from) && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    moving = { start: null, from: panes.map((pane) => [pane.from, pane.to]) };
  } else {
    moving = null;
    for (const pane of panes) [pane.from, pane.to] = pane.goal;
  }
  draw();
}

// ---- The page around the graph ---------------------------------------------------------------------------------------

const element = (id) => document.getElementById(id);

const NANOSECONDS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };

/** A weight with its unit. */
function amount(weight) {
  const nanoseconds = NANOSECONDS[data.unit];
  if (!nanoseconds) {
    const count = weight.toLocaleString("en", { maximumFractionDigits: 1 });
    return `${count} ${data.unit}`;
  }
  const value = weight * nanoseconds;
  const [unit, by] = Object.entries(NANOSECONDS).findLast(([, by]) => Math.abs(value) >= by) || ["ns", 1];
  const shown = value / by;
  const digits = Math.abs(shown) >= 100 || Number.isInteger(shown) ? 0 : Math.abs(shown) >= 10 ? 1 : 2;
  return `${shown.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits })} ${unit}`;
}

const percent = (part, of) => (of > 0 ? `${((100 * part) / of).toFixed(2)} %` : "0 %");

/** What is known of a node, a line each. */
function describe({ pane, node }) {
  const { tree, zoom } = panes[pane];
  const frame = tree.frame[node];
  const kind = data.kinds[data.kind[frame] ?? -1];
  const lines = [nameOf(frame) + (kind ? ` (${kind.name})` : "")];
  let line = amount(weightOf(tree, node));
  if (tree.w[node] !== whole) line += `, ${percent(tree.w[node], whole)} of all`;
  if (tree.w[zoom] !== whole && tree.w[node] < tree.w[zoom]) line += `, ${percent(tree.w[node], tree.w[zoom])} of what is shown`;
  lines.push(line);
  const own = state.width === "before" ? tree.before[node] * scale : tree.after[node];
  if (own > 0 && tree.end[node] > node + 1 && pane === 0) lines.push(`itself ${amount(own)}, ${percent(state.width === "before" ? tree.before[node] : own, whole)}`);
  if (compared) {
    const before = tree.allBefore[node] * scale;
    const after = tree.allAfter[node];
    const times = before > 0 && after > 0 ? ` (× ${(after / before).toFixed(2)})` : before > 0 ? " (gone)" : " (new)";
    const sign = after > before ? "+" : after < before ? "-" : "±";
    lines.push(`before ${amount(before)}, after ${amount(after)}: ${sign}${amount(Math.abs(after - before))}${times}`);
  }
  return lines;
}

const weightOf = (tree, node) => (state.width === "before" ? tree.allBefore[node] * scale : tree.w[node]);

/** Brings the page to what the state says. */
function show(animate = true) {
  const anew = JSON.stringify([state.focus, state.hide, state.reversed, state.sandwich, state.inverted]);
  const changed = anew !== show.last;
  show.last = anew;
  build();
  find();
  const theme = themeNow();
  document.documentElement.classList.toggle("dark", theme === "dark");
  spacer.style.height = `${rows * ROW}px`;
  for (const key of ["inverted", "reversed", "normalise"]) element(key).setAttribute("aria-pressed", state[key]);
  element("reversed").disabled = state.sandwich !== "";
  element("normalise").hidden = element("width").hidden = !compared;
  element("width").textContent = `Widths: ${state.width}`;
  element("colour").hidden = COLOURINGS.length < 2;
  element("colour").textContent = `Colour: ${state.colour}`;
  element("theme").textContent = theme === "dark" ? "Light" : "Dark";
  if (element("search").value !== state.search) element("search").value = state.search;
  tellFound();
  tellFilters();
  tellLegend(theme);
  tellSelected();
  if (changed) {
    // The new root in sight; a sandwich's in the middle of it.
    const root = panes[0].at * ROW;
    scroll.scrollTop = panes.length > 1 ? root - scroll.clientHeight / 2 : root;
  }
  move(animate && !changed);
}

function tellFound() {
  const output = element("found");
  output.classList.toggle("wrong", found.wrong !== "");
  if (found.wrong) output.textContent = found.wrong;
  else if (!state.search) output.textContent = "";
  else {
    const { length } = found.list;
    const at = found.at >= 0 ? `${(found.at + 1).toLocaleString("en")} of ` : "";
    const matches = `${at}${length.toLocaleString("en")} match${length === 1 ? "" : "es"}`;
    output.textContent = length ? `${matches}, ${percent(found.share, whole)}` : "no match";
  }
  element("previous").disabled = element("next").disabled = !found.list.length;
}

function tellFilters() {
  const list = element("filters");
  const chip = (text, label, changes) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${text} ×`;
    button.title = label;
    button.addEventListener("click", () => {
      go({ zoom: [0, 0], ...changes }, true);
      scroll.focus();
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  };
  const without = (all, one) => all.filter((frame) => frame !== one);
  list.replaceChildren(
    ...(state.sandwich ? [chip(`sandwich: ${bare(state.sandwich)}`, "Back to the whole graph", { sandwich: "" })] : []),
    ...state.focus.map((frame) => chip(`focus: ${bare(frame)}`, "Show all stacks", { focus: without(state.focus, frame) })),
    ...state.hide.map((frame) => chip(`hidden: ${bare(frame)}`, "Show it again", { hide: without(state.hide, frame) })),
  );
  const cut = Math.min(...panes.map((pane) => pane.tree.cut ?? Infinity));
  if (cut < Infinity) {
    const item = document.createElement("li");
    item.textContent = `stacks are cut after ${cut} frames: there are too many`;
    list.append(item);
  }
}

function tellLegend(theme) {
  const entry = (colour, text) => {
    const item = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.style.background = colour;
    item.append(swatch, text);
    return item;
  };
  const { dim } = THEMES[theme];
  const dimmed = (rgb) => css(rgb.map((v) => v * dim));
  let entries = [];
  if (state.colour === "kind") {
    entries = data.kinds.map(({ name, colour }) => entry(dimmed(rgbOf(colour)), name));
    if (data.kind.includes(-1)) entries.push(entry(dimmed(NO_KIND), "other"));
  }
  if (state.colour === "difference") {
    const how = state.normalise ? " (shares compared)" : "";
    entries = [entry(css(MORE), `+ more than before${how}`), entry(css(LESS), `- less than before${how}`)];
  }
  element("legend").replaceChildren(...entries);
}

function tellSelected() {
  const { tree, zoom } = panes[0];
  const lines = describe(selected || { pane: 0, node: zoom });
  element("detail").textContent = lines.join(" · ");
  const acts = selected && panes[selected.pane].tree.frame[selected.node] !== ALL;
  element("acts").hidden = !acts;
  graph.setAttribute("aria-label", `${data.title}: ${tree.n - 1} frames, ${amount(weightOf(tree, 0))}`);
}

// ---- What one can do -------------------------------------------------------------------------------------------------

function select(what) {
  selected = what;
  tellSelected();
  draw();
}

function zoom(which, node) {
  const to = [...state.zoom];
  to[which] = node;
  if (to.join() === state.zoom.join()) show();
  else go({ zoom: to }, true);
}

/** Scrolls to a node's row. */
function reveal({ pane, node }) {
  const y = rowOf(panes[pane], node) * ROW;
  if (y < scroll.scrollTop) scroll.scrollTop = y - 2 * ROW;
  else if (y + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + 3 * ROW - scroll.clientHeight;
}

/** The node at a place of the window; null where none is. */
function nodeAt(clientX, clientY) {
  const box = scroll.getBoundingClientRect();
  const px = clientX - box.left;
  const row = Math.floor((clientY - box.top + scroll.scrollTop) / ROW);
  for (let which = 0; which < panes.length; which++) {
    const pane = panes[which];
    const depth = (row - pane.at) * (pane.up ? -1 : 1);
    if (depth < 0 || (depth === 0 && !pane.ownRoot) || depth >= pane.tree.rows || !(pane.to > pane.from)) continue;
    const { tree } = pane;
    const weight = pane.from + (px / scroll.clientWidth) * (pane.to - pane.from);
    let node = 0;
    while (tree.depth[node] < depth) {
      let callee = node + 1;
      while (callee < tree.end[node] && !(tree.w[callee] > 0 && weight < tree.x[callee] + tree.w[callee])) callee = tree.end[callee];
      if (callee >= tree.end[node]) return null;
      node = callee;
    }
    return { pane: which, node };
  }
  return null;
}

/** Moves the selection to a caller, callee or neighbour. */
function walk(key) {
  if (!selected) {
    const which = 0;
    const what = { pane: which, node: panes[which].zoom };
    select(what);
    return reveal(what);
  }
  let { pane: which, node } = selected;
  const pane = panes[which];
  const { tree } = pane;
  const outwards = (key === "ArrowUp") !== pane.up;
  if (key === "ArrowUp" || key === "ArrowDown") {
    if (outwards && node > 0 && (tree.parent[node] > 0 || pane.ownRoot)) node = tree.parent[node];
    else if (outwards && panes.length > 1) {
      // Across the sandwich's middle; its root is drawn once, by the callees.
      const widest = node === 0 ? widestCallee(panes[1 - which].tree, 0) : 0;
      if (widest >= 0) [which, node] = [1 - which, widest];
    } else if (!outwards) {
      const callee = widestCallee(tree, node);
      if (callee >= 0) node = callee;
    }
  } else {
    const siblings = calleesOf(tree, tree.parent[node]);
    const at = siblings.indexOf(node) + (key === "ArrowRight" ? 1 : -1);
    if (siblings[at] !== undefined) node = siblings[at];
  }
  const what = { pane: which, node };
  // What is out of sight is zoomed out to.
  const target = panes[which];
  let around = target.zoom;
  const t = target.tree;
  while (around > 0 && !(node >= around && node < t.end[around]) && !(around >= node && around < t.end[node])) around = t.parent[around];
  selected = what;
  if (around !== target.zoom) zoom(which, around);
  else select(what);
  reveal(what);
}

function calleesOf(tree, node) {
  const list = [];
  if (node < 0) return list;
  for (let i = node + 1; i < tree.end[node]; i = tree.end[i]) if (tree.w[i] > 0) list.push(i);
  return list;
}

function widestCallee(tree, node) {
  return calleesOf(tree, node).reduce((best, i) => (best < 0 || tree.w[i] > tree.w[best] ? i : best), -1);
}

const chosen = () => (selected ? panes[selected.pane].tree.frame[selected.node] : ALL);

function filter(key) {
  const frame = chosen();
  if (frame === ALL) return;
  const name = frames[frame];
  if (key === "sandwich") go({ sandwich: name, zoom: [0, 0] }, true);
  else if (!state[key].includes(name)) go({ [key]: [...state[key], name], zoom: [0, 0] }, true);
}

const toggle = (key) => go({ [key]: !state[key], ...(key === "reversed" ? { zoom: [0, 0] } : {}) });

/** Takes back one thing: selection, search, zoom, the last filter. */
function undo() {
  if (selected) select(null);
  else if (state.search) go({ search: "" });
  else if (state.zoom[0] || state.zoom[1]) go({ zoom: [0, 0] }, true);
  else if (state.sandwich) go({ sandwich: "" }, true);
  else if (state.hide.length) go({ hide: state.hide.slice(0, -1) }, true);
  else if (state.focus.length) go({ focus: state.focus.slice(0, -1) }, true);
}

const actions = {
  "/": () => element("search").select(),
  n: () => step(1),
  N: () => step(-1),
  0: () => go({ zoom: [0, 0] }, true),
  i: () => toggle("inverted"),
  r: () => state.sandwich || toggle("reversed"),
  s: () => filter("sandwich"),
  f: () => filter("focus"),
  h: () => filter("hide"),
  c: () => go({ colour: COLOURINGS[(COLOURINGS.indexOf(state.colour) + 1) % COLOURINGS.length] }),
  d: () => go({ theme: themeNow() === "dark" ? "light" : "dark" }),
  m: () => compared && toggle("normalise"),
  w: () => compared && go({ width: state.width === "after" ? "before" : "after" }),
  "?": () => element("help").showModal(),
  Escape: undo,
  Enter: () => selected && zoom(selected.pane, selected.node),
  Backspace: () => {
    const which = selected ? selected.pane : 0;
    zoom(which, Math.max(0, panes[which].tree.parent[panes[which].zoom]));
  },
  ArrowUp: () => walk("ArrowUp"),
  ArrowDown: () => walk("ArrowDown"),
  ArrowLeft: () => walk("ArrowLeft"),
  ArrowRight: () => walk("ArrowRight"),
};

addEventListener("keydown", (event) => {
  const typing = event.target === element("search");
  if (element("help").open) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "f" && !typing) {
    // A page's own search would find nothing on a canvas.
    actions["/"]();
    event.preventDefault();
  }
  if (event.altKey || event.metaKey || event.ctrlKey) return;
  if (typing) {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      go({ search: "" });
      scroll.focus();
    } else return;
  } else if (event.target.tagName === "BUTTON" && (event.key === "Enter" || event.key === " ")) {
    return;
  } else if (Object.hasOwn(actions, event.key)) {
    actions[event.key]();
  } else return;
  event.preventDefault();
});

element("searching").addEventListener("submit", (event) => event.preventDefault());
element("search").addEventListener("input", (event) => go({ search: event.target.value }));
element("previous").addEventListener("click", () => step(-1));
element("next").addEventListener("click", () => step(1));
const buttons = { reset: "0", inverted: "i", reversed: "r", colour: "c", normalise: "m", width: "w", theme: "d", asking: "?", sandwich: "s", focus: "f", hide: "h" };
for (const [id, key] of Object.entries(buttons)) element(id).addEventListener("click", () => actions[key]());

scroll.addEventListener("click", (event) => {
  const what = nodeAt(event.clientX, event.clientY);
  if (!what) return;
  selected = what;
  zoom(what.pane, what.node);
});

const tip = element("tip");
let pointed = "";
scroll.addEventListener("pointermove", (event) => {
  const what = event.pointerType === "touch" ? null : nodeAt(event.clientX, event.clientY);
  tip.hidden = !what;
  scroll.style.cursor = what ? "pointer" : "";
  if (!what) return;
  const [name, ...rest] = describe(what);
  const text = [name.length > 300 ? name.slice(0, 299) + "…" : name, ...rest].join("\n");
  if (text !== pointed) tip.textContent = pointed = text;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.max(8, Math.min(event.clientX + 12, innerWidth - width - 8));
  const y = event.clientY + 16 + height < innerHeight ? event.clientY + 16 : Math.max(8, event.clientY - height - 10);
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
});
scroll.addEventListener("pointerleave", () => (tip.hidden = true));
scroll.addEventListener("scroll", () => {
  tip.hidden = true;
  draw();
});
new ResizeObserver(draw).observe(scroll);
systemDark.addEventListener("change", () => show(false));

// ---- On paper --------------------------------------------------------------------------------------------------------

const PRINT_WIDTH = 1000;     // of a line of frames, which is then scaled to the paper's
const PRINT_ROWS = 36;        // of a sheet at most: a page ends between two, not within

/** What paintRows wants of a canvas, as SVG: it is printed as sharp as the printer can. */
class Sheet {
  constructor(width, height) {
    this.svg = Sheet.make("svg", { viewBox: `0 0 ${width} ${height}` });
  }

  static make(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      made.setAttribute(name, typeof value === "number" ? Number(value.toFixed(2)) : value);
    }
    return made;
  }

  fillRect(x, y, width, height) {
    this.svg.append(Sheet.make("rect", { x, y, width, height, fill: this.fillStyle }));
  }

  strokeRect(x, y, width, height) {
    this.svg.append(Sheet.make("rect", { x, y, width, height, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth }));
  }

  fillText(text, x, y) {
    const made = Sheet.make("text", { x, y, fill: this.fillStyle });
    made.textContent = text;
    this.svg.append(made);
  }

  measureText(text) {
    return context.measureText(text);
  }
}

function print() {
  const sheets = [];
  let [first, last] = [rows, -1];
  // Rows without any frame that can be seen are left out.
  for (const pane of panes) {
    const least = ((pane.to - pane.from) / PRINT_WIDTH) * 0.25;
    const { tree } = pane;
    for (let i = 0; i < tree.n; ) {
      const inSight = tree.w[i] > least && tree.x[i] < pane.to && tree.x[i] + tree.w[i] > pane.from;
      if (inSight) {
        const row = rowOf(pane, i);
        first = Math.min(first, row);
        last = Math.max(last, row);
      }
      i = inSight ? i + 1 : tree.end[i];
    }
  }
  const count = last - first + 1;
  const most = Math.ceil(count / Math.ceil(count / PRINT_ROWS));
  for (let row = first; row <= last; row += most) {
    const until = Math.min(last, row + most - 1);
    const sheet = new Sheet(PRINT_WIDTH, (until - row + 1) * ROW);
    paintRows(sheet, PRINT_WIDTH, row, until, "light");
    sheets.push(sheet.svg);
  }
  const searched = document.createElement("p");
  if (state.search) searched.textContent = `Search: ${state.search} · ${element("found").textContent}`;
  element("print").replaceChildren(searched, ...sheets);
  tellLegend("light");
}
addEventListener("beforeprint", print);
addEventListener("afterprint", () => {
  element("print").replaceChildren();
  tellLegend(themeNow());
});

// ---- Begin -----------------------------------------------------------------------------------------------------------

element("title").textContent = data.title;
element("subtitle").textContent = data.subtitle;
for (const item of document.querySelectorAll(".diff")) item.hidden = !compared;
state = fromHash(location.hash);
written = location.hash;
show(false);
requestAnimationFrame(() => performance.mark("drawn"));

})();
