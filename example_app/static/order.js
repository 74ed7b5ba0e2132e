// Sends the order form by script. The token is fetched once for the form, not once for each click.
const form = document.querySelector("#script");
const answerLine = document.querySelector("#script-answer");
const { send, renew } = form.elements;
let issued;

async function fetchToken() {
  const answer = await fetch(form.dataset.tokenUrl);
  if (!answer.ok) throw new Error(`no token: ${answer.status}`);
  issued = await answer.json(); // { token, header, … }
  send.disabled = renew.disabled = false;
  answerLine.value = "";
}

async function sendOrder(order, { token, header }) {
  const request = { method: "POST", body: order, headers: { Accept: "application/json", [header]: token } };
  for (;;) {
    const answer = await fetch(form.action, request);
    const body = await answer.json();
    if (answer.ok) return { ...body, again: answer.headers.has("Idempotent-Replayed") };
    if (body.code !== "in_progress") throw new Error(body.detail);
    answerLine.value = "The first click is being worked on …";
    await new Promise((resolve) => setTimeout(resolve, 1000 * answer.headers.get("Retry-After")));
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  answerLine.value = "Ordering …";
  try {
    const { number, again } = await sendOrder(new FormData(form), issued);
    answerLine.value = `Order number ${number}${again ? " (the first answer again)" : ""}.`;
  } catch (error) {
    answerLine.value = error.message;
  }
});
renew.addEventListener("click", fetchToken);
fetchToken();
