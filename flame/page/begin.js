// ---- Begin -----------------------------------------------------------------------------------------------------------

element("title").textContent = data.title;
element("subtitle").textContent = data.subtitle;
for (const item of document.querySelectorAll(".diff")) item.hidden = !compared;
for (const item of document.querySelectorAll(".timed")) item.hidden = !timed.nodes.length;
state = fromHash(location.hash);
written = location.hash;
show(false);
requestAnimationFrame(() => performance.mark("drawn"));
