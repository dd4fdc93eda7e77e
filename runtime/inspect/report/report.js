"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const [kernelBox, fileBox, left, right, chain] = ["kernel", "file", "left", "right", "chain"].map(byId);

  // Fields of an instruction, in the order in which the data has them.
  const ADDRESS = 0, TEXT = 1, CLASS = 2, STACK = 3, PTX_LINE = 4, TARGET = 5;
  const PTX = "PTX";

  // What the panes show: the kernel, the file on the left, and for that file the instructions of each line.
  let kernel = null;
  let linesOfFile = new Map();

  const hex = (address) => address.toString(16).padStart(4, "0");
  const instructions = () => (kernel.sass ? kernel.sass.instructions : []);
  const stackOf = (instruction) => (instruction[STACK] < 0 ? [] : kernel.sass.stacks[instruction[STACK]]);

  /** The lines of `file` that an instruction comes from, the innermost first. */
  function linesOf(instruction, file) {
    if (file === PTX) return instruction[PTX_LINE] > 0 ? [instruction[PTX_LINE]] : [];
    return stackOf(instruction).filter((place) => place[0] === file).map((place) => place[1]);
  }

  function isHot(address) {
    if (kernel.hot_loop === null || kernel.hot_loop === undefined) return false;
    return kernel.loops[kernel.hot_loop].addresses.some(([first, last]) => first <= address && address <= last);
  }

  function makeRow(pane, index, number, text, classes) {
    const row = document.createElement("div");
    row.className = "row " + classes;
    row.id = `${pane.id}-${index}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", "false");
    const no = document.createElement("span");
    no.className = "no";
    no.textContent = number;
    const code = document.createElement("span");
    code.className = "code";
    code.textContent = text;
    row.append(no, code);
    return row;
  }

  function showMachineCode() {
    const rows = instructions().map((instruction, index) => {
      const target = instruction[TARGET] === null ? "" : `  -> ${hex(instruction[TARGET])}`;
      const classes = instruction[CLASS] + (isHot(instruction[ADDRESS]) ? " hot" : "") + " has";
      return makeRow(right, index, hex(instruction[ADDRESS]), instruction[TEXT] + target, classes);
    });
    right.replaceChildren(...rows);
    if (!kernel.sass) right.textContent = kernel.sass_problem;
  }

  function showFile(name) {
    const text = name === PTX ? kernel.ptx : kernel.sources.find((source) => source.name === name).text;
    linesOfFile = new Map();
    instructions().forEach((instruction, index) => {
      for (const line of linesOf(instruction, name)) {
        if (!linesOfFile.has(line)) linesOfFile.set(line, []);
        linesOfFile.get(line).push(index);
      }
    });
    const rows = text.replace(/\n$/, "").split("\n").map((line, index) =>
      makeRow(left, index, String(index + 1), line, linesOfFile.has(index + 1) ? "has" : ""));
    left.replaceChildren(...rows);
    fileBox.value = name;
  }

  function unmark() {
    for (const pane of [left, right]) {
      for (const row of pane.querySelectorAll(".inner, .outer, .now")) {
        row.classList.remove("inner", "outer", "now");
        row.setAttribute("aria-selected", "false");
      }
    }
  }

  function mark(row, kind) {
    if (!row) return;
    row.classList.add(kind);
    row.setAttribute("aria-selected", "true");
  }

  /** Makes `row` the current one of its pane, and scrolls the pane, but not the page, to show it. */
  function setCurrent(pane, row) {
    row.classList.add("now");
    pane.setAttribute("aria-activedescendant", row.id);
    const below = row.offsetTop + row.offsetHeight - pane.clientHeight;
    pane.scrollTop = Math.min(row.offsetTop, Math.max(pane.scrollTop, below));
  }

  function centre(pane, row) {
    if (row) pane.scrollTop = row.offsetTop - pane.clientHeight / 2;
  }

  /** A line on the left: marks the instructions that came from it. */
  function chooseLine(index) {
    unmark();
    const row = left.children[index];
    const found = linesOfFile.get(index + 1) || [];
    mark(row, "inner");
    setCurrent(left, row);
    for (const i of found) mark(right.children[i], linesOf(instructions()[i], fileBox.value)[0] === index + 1 ? "inner" : "outer");
    centre(right, right.children[found[0]]);
    chain.textContent = `${fileBox.value}:${index + 1}: ${found.length} instructions`;
  }

  /** An instruction: shows the line that it came from, and those that this was inlined into. */
  function chooseInstruction(index) {
    unmark();
    const instruction = instructions()[index];
    const stack = stackOf(instruction);
    if (fileBox.value !== PTX && stack.length > 0 && stack[0][0] !== fileBox.value &&
        kernel.sources.some((source) => source.name === stack[0][0])) showFile(stack[0][0]);
    const row = right.children[index];
    mark(row, "inner");
    setCurrent(right, row);
    const lines = linesOf(instruction, fileBox.value);
    lines.forEach((line, i) => mark(left.children[line - 1], i === 0 ? "inner" : "outer"));
    centre(left, left.children[lines[0] - 1]);
    chain.textContent = stack.map((place) => place.join(":")).join("  in  ") || "no line is known";
  }

  const choose = (pane, index) => (pane === left ? chooseLine : chooseInstruction)(index);

  function currentIndex(pane) {
    const id = pane.getAttribute("aria-activedescendant");
    return id ? Number(id.split("-")[1]) : -1;
  }

  function onKey(event) {
    const pane = event.currentTarget;
    const count = pane.children.length;
    const page = Math.max(1, Math.floor(pane.clientHeight / 20));
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    if (!(event.key in moves) || count === 0) return;
    event.preventDefault();
    choose(pane, Math.min(count - 1, Math.max(0, currentIndex(pane) + moves[event.key])));
  }

  function onClick(event) {
    const row = event.target.closest(".row");
    if (row) choose(event.currentTarget, Number(row.id.split("-")[1]));
  }

  function addOptions(box, names) {
    box.replaceChildren(...names.map((name) => new Option(name, name)));
  }

  function showKernel(name) {
    kernel = data.kernels.find((candidate) => candidate.kernel === name);
    kernelBox.value = name;
    byId("hot").disabled = !kernel.sass || kernel.hot_loop === null;
    const names = kernel.sources.map((source) => source.name);
    addOptions(fileBox, kernel.ptx ? names.concat(PTX) : names);
    left.removeAttribute("aria-activedescendant");
    right.removeAttribute("aria-activedescendant");
    showMachineCode();
    showFile(names[0]);
    chain.textContent = kernel.dropped ? `${kernel.dropped} instructions more are not shown` : "";
  }

  function showHotLoop(focus) {
    const first = kernel.loops[kernel.hot_loop].addresses[0][0];
    const index = instructions().findIndex((instruction) => instruction[ADDRESS] === first);
    chooseInstruction(index);
    centre(right, right.children[index]);
    if (focus) right.focus({ preventScroll: true });
  }

  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    byId("theme").setAttribute("aria-pressed", String(dark));
  }

  for (const pane of [left, right]) {
    pane.addEventListener("click", onClick);
    pane.addEventListener("keydown", onKey);
  }
  kernelBox.addEventListener("change", () => showKernel(kernelBox.value));
  fileBox.addEventListener("change", () => showFile(fileBox.value));
  byId("hot").addEventListener("click", () => showHotLoop(true));
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
  for (const link of document.querySelectorAll("a[data-kernel]")) {
    link.addEventListener("click", () => showKernel(link.dataset.kernel));
  }

  setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
  addOptions(kernelBox, data.kernels.map((candidate) => candidate.kernel));
  const first = data.kernels.find((candidate) => candidate.tile) || data.kernels[0];
  if (first) {
    showKernel(first.kernel);
    if (first.sass && first.hot_loop !== null) showHotLoop(false);
  }
})();
