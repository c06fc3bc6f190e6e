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

/** As much of a name as fits, measured if its letters may differ in width. */
function fit(target, name, width) {
  const most = Math.floor(width / letter);
  if (most < 2) return "";
  if (/^[\x20-\x7e]*$/.test(name)) return name.length <= most ? name : most < 4 ? "" : name.slice(0, most - 1) + "…";
  if (target.measureText(name).width <= width) return name;
  const letters = [...name.slice(0, most)];
  while (letters.length && target.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.length > 1 ? letters.join("") + "…" : "";
}

/** Draws adjacent frames of a row that are too narrow to distinguish as one: draw(depth, left, right). */
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
 * Nodes too narrow to see are skipped with all nodes below, so that the time depends on what is visible.
 */
function paintRows(target, width, first, last, theme) {
  const look = THEMES[theme];
  target.fillStyle = css(look.paper);
  target.fillRect(0, 0, width, (last - first + 1) * ROW);
  target.font = `${FONT}px ${FAMILY}`;
  target.textBaseline = "middle";
  const colours = palette(theme, state.colour);
  const differ = state.colour === "difference";
  const searching = results.panes.length > 0;
  const matchPaint = paint(MATCH, look.paper);
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
    const { own, below } = results.panes[which] || {};
    // For each row, the adjacent narrow frames not drawn yet, and the matches among them.
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
        // A match below a far too narrow frame is still shown.
        if (right - left < 0.25 && !(searching && below[i])) i = end[i];
        else i++;
        continue;
      }
      if (inSight) {
        const l = Math.max(0, left);
        const wide = Math.min(width, right) - l;
        const y = (row - first) * ROW;
        const matches = searching && own[i];
        const paints = matches ? matchPaint
          : differ ? difference(theme, pane.tree, i)
          : (colours[frame[i]] ??= colourOf(frame[i], theme, state.colour));
        const faded = searching && !matches ? 2 : 0;
        box(l, y, wide > 3 ? wide - 1 : wide - 0.25, paints[faded]);
        if (wide > 20) labels.push(l + 3, y, wide - 7, i, which, paints[faded + 1]);
      }
      i++;
      // Invisible rows are skipped.
      if (pane.up ? row - 1 < first : row + 1 > last) i = end[i - 1];
    }
    many.end();
    hits.end();
    for (let k = 0; k < narrow.length; k += 3) box(narrow[k], narrow[k + 1], narrow[k + 2], matchPaint[0]);
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
let moving = null;            // {start, from: [[from, to], …]}: an animation towards the panes' goals

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

/** Moves the panes to their goals; immediately if motion is not wanted or there is no previous position. */
function move(animate) {
  if (animate && panes.every((pane) => pane.to > pane.from) && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    moving = { start: null, from: panes.map((pane) => [pane.from, pane.to]) };
  } else {
    moving = null;
    for (const pane of panes) [pane.from, pane.to] = pane.goal;
  }
  draw();
}
