"use strict";
// All steps can be read without this. It adds: one step chosen at a time, its state beside it.
document.documentElement.classList.add("live");
const players = [...document.querySelectorAll(".counterexample")].filter((a) => a.querySelector(".step")).map((article) => {
  const steps = [...article.querySelectorAll(".step")];
  const range = article.querySelector("input");
  const output = article.querySelector("output");
  const now = article.querySelector(".now");
  const svgs = [...article.querySelectorAll("svg")];
  const show = (number) => {
    const chosen = Math.min(Math.max(number, 1), steps.length);
    range.value = chosen;
    output.value = `${chosen} / ${steps.length}`;
    steps.forEach((step, index) => {
      step.classList.toggle("selected", index + 1 === chosen);
      // Shown where there is no room beside the steps.
      step.querySelector(".state").open = index + 1 === chosen;
    });
    const title = document.createElement("b");
    title.textContent = `State after step ${chosen}`;
    const state = [...steps[chosen - 1].querySelector(".state").children].slice(1).map((child) => child.cloneNode(true));
    now.replaceChildren(title, ...state);
    svgs.forEach((svg) => {
      const cursor = svg.querySelector(".cursor");
      cursor.setAttribute("x", svg.querySelectorAll(".tick")[chosen].getAttribute("x1"));
    });
  };
  const by = (difference) => show(Number(range.value) + difference);
  article.querySelector(".stepper").hidden = false;
  now.hidden = false;
  range.addEventListener("input", () => show(Number(range.value)));
  article.querySelectorAll("[data-by]").forEach((button) => button.addEventListener("click", () => by(Number(button.dataset.by))));
  steps.forEach((step) => step.addEventListener("click", (event) => {
    if (!event.target.closest("a, summary")) show(Number(step.dataset.step));
  }));
  svgs.forEach((svg) => svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 320;
    const ticks = [...svg.querySelectorAll(".tick")].map((tick) => Number(tick.getAttribute("x1")));
    show(ticks.filter((tick) => tick <= x).length - 1);
  }));
  show(1);
  return { article, range, by };
});
// The arrow keys move the one in which the focus is, else the one that fills most of the window.
const seen = (player) => {
  const box = player.article.getBoundingClientRect();
  return Math.min(box.bottom, innerHeight) - Math.max(box.top, 0);
};
addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const busy = event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("input, .scroll");
  if (!by || busy || !players.length) return;
  const focused = players.find((player) => player.article.contains(document.activeElement));
  const player = focused || players.reduce((best, other) => (seen(other) > seen(best) ? other : best));
  if (!focused && seen(player) <= 0) return;
  player.by(by);
  event.preventDefault();
});
