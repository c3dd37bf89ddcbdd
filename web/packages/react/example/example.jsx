// A small chat. Its address: index.html#gateway=https://gateway.example&key=acpg_…&agent=demo
import { answerText, Attempt, blocksText, GatewayClient, openRequests } from "@acp-gateway/client";
import { useSession, useSessionState, useSharedConnection } from "@acp-gateway/react";
import { useActionState, useState } from "react";
import { createRoot } from "react-dom/client";

const { gateway, key, agent } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const client = new GatewayClient({ url: gateway, key });
const attempt = new Attempt();
function Chat({ connection }) {
  const [session, setSession] = useState(null);
  const [text, setText] = useState("");
  const state = useSessionState(useSession(client, connection, session));
  const start = (body, call) => client.createSession(body, call).then((made) => setSession(made.sessionId));
  const send = (body, call) => client.prompt(session, body, call);
  const submit = () => (session ? attempt.run({ prompt: text, queue: true }, send) : attempt.run({ agent, prompt: text }, start));
  const [error, action, busy] = useActionState(() => submit().then(() => setText(""), (reason) => reason.message), null);
  const requests = state ? openRequests(state.log) : [];
  const answer = (request, { optionId }) => client.answerPermission(session, request.requestId, { optionId });
  const button = (request, option) => <button key={option.optionId} onClick={() => answer(request, option)}>{option.name}</button>;
  const turn = (turn) => <section key={turn.key}><p>{blocksText(turn.prompt)}</p><p>{answerText(turn)}</p></section>;
  return <main>
    <div role="log" aria-label="Conversation">{state?.log.turns.map(turn)}</div>
    {requests.map((request) => <p key={request.key}>{request.title} {request.options.map((option) => button(request, option))}</p>)}
    <form action={action}><label>Message <input required value={text} onChange={(event) => setText(event.target.value)} /></label><button disabled={busy}>Send</button></form>
    <p role="status">{error} {state?.connection.reason ?? state?.connection.state}</p>
  </main>;
}
const App = () => { const shared = useSharedConnection(client); return shared && <Chat connection={shared.connection} />; };
createRoot(document.getElementById("root")).render(<App />);
