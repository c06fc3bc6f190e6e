// ---- On paper --------------------------------------------------------------------------------------------------------

const PRINT_WIDTH = 1000;     // of a row of frames, then scaled to the paper's width
const PRINT_ROWS = 36;        // maximum per sheet: pages break between rows

/** The canvas methods that paintRows needs, as SVG: sharp at any printer's resolution. */
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
  // Rows without any visible frame are left out.
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
  showLegend("light");
}
addEventListener("beforeprint", print);
addEventListener("afterprint", () => {
  element("print").replaceChildren();
  showLegend(themeNow());
});
