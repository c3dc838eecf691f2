// What a reader would stumble over, as a list of sentences: run in the page by browser.rs, through the DevTools protocol.
(() => {
  const problems = [];
  const seen = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility === "visible";
  const name = (element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> "${text}"`;
  };

  for (const details of document.querySelectorAll("details")) details.open = true;

  // Nothing is wider than the page, but what scrolls in a box of its own.
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) problems.push(`the page scrolls sideways: ${document.documentElement.scrollWidth} > ${width}`);
  for (const element of document.body.querySelectorAll("*")) {
    if (element.closest(".scroll > *, .skip, svg *") || !seen(element)) continue;
    const box = element.getBoundingClientRect();
    if (box.right > width + 1 || box.left < -1) problems.push(`${name(element)} reaches over the edge: ${box.left} to ${box.right} of ${width}`);
  }

  // Every chart has something drawn, its words are within it, apart from each other, and large enough to read.
  const charts = [...document.querySelectorAll("svg.chart")].filter(seen);
  for (const chart of charts) {
    const frame = chart.getBoundingClientRect();
    const label = chart.getAttribute("aria-label") ?? "";
    if (!label.startsWith("Chart of ")) problems.push("a chart has no description");
    const drawn = [...chart.querySelectorAll("path")].filter((path) => path.getTotalLength() > 5);
    const marks = chart.querySelectorAll("polygon, circle");
    if (drawn.length === 0 || marks.length === 0) problems.push(`nothing is drawn: ${label}`);
    const words = [...chart.querySelectorAll("text")].filter((text) => !text.closest(".hint")).map((text) => [text, text.getBoundingClientRect()]);
    for (const [index, [text, box]] of words.entries()) {
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) problems.push(`${name(text)} stands outside its chart`);
      if (parseFloat(text.getAttribute("font-size")) * frame.width / chart.viewBox.baseVal.width < 9) problems.push(`${name(text)} is too small`);
      for (const [other, beside] of words.slice(index + 1)) {
        const across = Math.min(box.right, beside.right) - Math.max(box.left, beside.left);
        const down = Math.min(box.bottom, beside.bottom) - Math.max(box.top, beside.top);
        if (across > 1 && down > 3) problems.push(`${name(text)} and ${name(other)} overlap`);
      }
    }
    for (const hint of chart.querySelectorAll(".hint > g")) {
      const box = hint.getBBox();
      const view = chart.viewBox.baseVal;
      if (box.x < 0 || box.y < 0 || box.x + box.width > view.width || box.y + box.height > view.height) problems.push(`a hint stands outside its chart: ${name(hint)}`);
    }
  }

  // WCAG 2.2, 1.4.3: text has 4.5 times the luminance of what is behind it, large text 3 times.
  const channels = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (colour) => {
    const [red, green, blue] = channels(colour).map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const parts = channels(colour);
      if (parts.length === 3 || parts[3] === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(element) || element.closest(".hint, .skip")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [luminance(element.closest("svg") ? style.fill : style.color), luminance(behind(element))].map((value) => value + 0.05);
    const ratio = Math.max(one, other) / Math.min(one, other);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 600);
    texts += 1;
    if (!(ratio >= (large ? 3 : 4.5))) problems.push(`${name(element)} has a contrast of ${ratio.toFixed(2)}`);
  }

  // Without a script, ticks hide lines, change the scale, and choose the colours.
  const tick = (input, value) => { input.checked = value; };
  const first = document.querySelector(".experiment");
  const line = [...(first?.querySelectorAll(".line-0") ?? [])].find(seen);
  if (line) {
    const show = first.querySelector(".show-0");
    tick(show, false);
    if (seen(line)) problems.push("a line that is not ticked is still drawn");
    tick(show, true);
    if (!seen(line)) problems.push("a line does not come back");
    const scale = first.querySelector(".scale input");
    tick(scale, true);
    if (![...first.querySelectorAll(".logarithmic")].some(seen) || [...first.querySelectorAll(".linear")].some(seen)) problems.push("the height did not become logarithmic");
    tick(scale, false);
  }
  const ground = () => luminance(getComputedStyle(document.body).backgroundColor);
  const chosen = [["scheme-dark", ground() < 0.5], ["scheme-light", false], ["scheme-dark", true]].map(([id]) => {
    tick(document.getElementById(id), true);
    return ground() < 0.5;
  });
  // Paper is always light.
  if (chosen.join() !== (matchMedia("print").matches ? "false,false,false" : "true,false,true")) problems.push(`choosing the colours has no effect: ${chosen}`);
  tick(document.getElementById("scheme-auto"), true);

  if (document.scripts.length > 0) problems.push("there is a script in the page");
  return { problems, charts: charts.length, texts, title: document.title, dark: ground() < 0.5 };
})()
