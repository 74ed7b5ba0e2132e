// Keeps the list of orders true on every page: after Back, the browser shows a page as it was.
const list = document.querySelector("#orders");
const reset = document.querySelector("#reset");

async function refresh() {
  const answer = await fetch(list.dataset.url, { cache: "no-store" });
  const html = await answer.text();
  if (!answer.ok || html === list.dataset.shown) return;
  list.innerHTML = html;
  list.dataset.shown = html;
  document.querySelector("#bar-total").textContent = list.querySelector("[data-total]").dataset.total;
}

function refreshIfSeen() {
  if (document.visibilityState === "visible") refresh().catch(() => {}); // the shop may be closed
}

reset.addEventListener("submit", async (event) => {
  event.preventDefault();
  await fetch(reset.action, { method: "POST" });
  await refresh();
});
addEventListener("pageshow", refreshIfSeen);
setInterval(refreshIfSeen, 1000);
