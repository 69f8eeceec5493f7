// Tables that are updated in place. Rows and cells are made once and change their text only, so that
// focus, selection and scrolling stay where they are.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Fills a cell with a text, or with a button for a PID.
function fill(cell, column, row, open) {
  const value = column.value(row);
  if (column.isBad) cell.classList.toggle("bad", column.isBad(row));
  if (!column.pid || value === "-") return setText(cell, value);
  let button = cell.firstElementChild;
  if (!button) {
    cell.textContent = "";
    button = element("button", { type: "button" });
    button.addEventListener("click", () => open(button.dataset.pid, button));
    cell.append(button);
  }
  button.dataset.pid = value;
  setText(button, value);
}

// Makes a table. A column has a title and a value, and perhaps: key (it can be sorted by it), right,
// wide, pid, isBad.
export function makeTable(container, caption, columns, { open, sort } = {}) {
  const captionNode = element("caption", {}, caption);
  const head = element("tr");
  const heads = columns.map((column) => {
    const cell = element("th", { scope: "col" });
    if (column.right) cell.classList.add("right");
    if (column.key && sort) {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => sort(column.key));
      cell.append(button);
    } else {
      cell.textContent = column.title;
    }
    head.append(cell);
    return cell;
  });
  const body = element("tbody");
  const frame = element("div", { class: "frame", tabindex: "0", role: "group", "aria-label": caption });
  frame.append(element("table", {}, captionNode, element("thead", {}, head), body));
  container.append(frame);

  function grow(count) {
    while (body.rows.length < count) {
      const row = element("tr");
      for (const column of columns) {
        const cell = element("td");
        if (column.right) cell.classList.add("right");
        if (column.wide) cell.classList.add("wide");
        row.append(cell);
      }
      body.append(row);
    }
    while (body.rows.length > count) body.rows[body.rows.length - 1].remove();
  }

  return {
    update(rows, text = caption, sortedBy = null) {
      const focused = body.contains(document.activeElement) ? document.activeElement.dataset.pid : null;
      setText(captionNode, text);
      columns.forEach((column, at) => {
        if (column.key) heads[at].setAttribute("aria-sort", column.key === sortedBy ? "descending" : "none");
      });
      grow(rows.length);
      rows.forEach((row, at) => {
        columns.forEach((column, number) => fill(body.rows[at].cells[number], column, row, open));
      });
      if (!focused) return;
      // The process may have another row now. If it has none, the focus stays at its place.
      const active = document.activeElement;
      if (active && body.contains(active) && active.dataset.pid === focused) return;
      const button = body.querySelector(`button[data-pid="${CSS.escape(focused)}"]`);
      if (button) button.focus({ preventScroll: true });
      else if (!body.contains(document.activeElement)) (body.querySelector("button") ?? frame).focus();
    },
  };
}

const LINE = 26;

// Makes a list of any length, of which only the visible lines exist. `load` returns some of its rows
// and the number of all.
export function makeList(container, caption, titles, { open, load }) {
  const scroller = element("div", { class: "scroll", tabindex: "0", role: "table", "aria-label": caption });
  const head = element("div", { class: "line head", role: "row", "aria-rowindex": "1" });
  for (const title of titles) head.append(element("span", { role: "columnheader" }, title));
  const space = element("div", { class: "space", role: "rowgroup" });
  scroller.append(element("div", { role: "rowgroup" }, head), space);
  container.append(scroller);
  const lines = [];
  let isLoading = false;
  let isStale = false;

  function line(at) {
    while (lines.length <= at) {
      const made = element("div", { class: "line", role: "row" });
      const button = element("button", { type: "button" });
      button.addEventListener("click", () => open(button.dataset.pid, button));
      made.append(element("span", { role: "rowheader" }, button));
      for (let n = 1; n < titles.length; n++) made.append(element("span", { role: "cell" }));
      space.append(made);
      lines.push(made);
    }
    return lines[at];
  }

  // One request at a time: the door serves few connections. What was scrolled to meanwhile comes next.
  async function update() {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    try {
      while (isStale) {
        isStale = false;
        await refresh();
      }
    } finally {
      isLoading = false;
    }
  }

  async function refresh() {
    const first = Math.max(0, Math.floor(scroller.scrollTop / LINE) - 5);
    const count = Math.ceil(scroller.clientHeight / LINE) + 10;
    const part = await load(first, count);
    space.style.height = `${part.total * LINE}px`;
    scroller.setAttribute("aria-rowcount", String(part.total + 1));
    part.rows.forEach((row, at) => {
      const made = line(at);
      made.hidden = false;
      made.style.display = "";
      made.style.transform = `translateY(${(first + at) * LINE}px)`;
      made.setAttribute("aria-rowindex", String(first + at + 2));
      const button = made.firstElementChild.firstElementChild;
      button.dataset.pid = row[0];
      row.forEach((text, number) => setText(number === 0 ? button : made.children[number], text));
    });
    for (const unused of lines.slice(part.rows.length)) unused.style.display = "none";
  }

  let waits = false;
  scroller.addEventListener("scroll", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; update().catch(() => {}); }); // The next look tells a failure.
  }, { passive: true });
  return { update };
}
