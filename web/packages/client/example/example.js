// A chat without a framework. Its address: index.html#gateway=https://gateway.example&key=acpg_…&agent=demo
import { answerText, Attempt, blocksText, GatewayClient, openRequests, SessionFeed } from "@acp-gateway/client";
const { gateway, key, agent } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const client = new GatewayClient({ url: gateway, key });
const [log, requests, form, status] = ["#log", "#requests", "form", "#status"].map((name) => document.querySelector(name));
const element = (name, textContent, more) => Object.assign(document.createElement(name), { textContent, ...more });
const attempt = new Attempt();
let feed = null;
form.onsubmit = async (event) => {
  event.preventDefault();
  const prompt = form.message.value;
  try {
    if (feed) await attempt.run({ prompt, queue: true }, (body, call) => client.prompt(feed.sessionId, body, call));
    else follow(await attempt.run({ agent, prompt }, (body, call) => client.createSession(body, call)));
    form.reset();
  } catch (error) {
    status.textContent = error.message; // The message is still in the field: send it again.
  }
};
function follow({ sessionId }) {
  feed = new SessionFeed(client, client.sharedConnection(), sessionId);
  feed.subscribe(() => {
    const { log: now, connection } = feed.state();
    const answer = ({ requestId }, { optionId }) => client.answerPermission(sessionId, requestId, { optionId });
    const button = (asked, option) => element("button", option.name, { onclick: () => answer(asked, option) });
    log.replaceChildren(...now.turns.flatMap((turn) => [element("p", blocksText(turn.prompt)), element("p", answerText(turn))]));
    requests.replaceChildren(...openRequests(now).flatMap((asked) => [asked.title, ...asked.options.map((option) => button(asked, option))]));
    status.textContent = connection.reason ?? connection.state;
  });
}
