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
