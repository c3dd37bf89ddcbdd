// Picks an agent and starts a session with it.

import { useEffect, useRef, useState, type FormEvent, type ReactNode } from "react";
import type { Client } from "../api/client";
import { idempotencyKey } from "../api/idempotency";
import { mayHaveHappened } from "../api/problem";
import type { Agent } from "../api/types";
import { line } from "../model/read";
import { goTo, sessionHref } from "../model/route";
import { ProblemNote } from "./ProblemNote";
import { Where } from "./where";

interface Props {
  client: Client;
  menu: ReactNode;
  onCreated(): void;
}

export function StartPage({ client, menu, onCreated }: Props) {
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const [chosen, setChosen] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [asked, setAsked] = useState(0);
  /** The key of a start that may have reached the gateway although its answer was lost: the next try repeats it. */
  const unanswered = useRef<{ agent: string; key: string } | null>(null);

  useEffect(() => {
    document.title = "acp-gateway";
    const stop = new AbortController();
    client.agents(stop.signal).then(
      (found) => {
        setAgents(found);
        setError(null);
        setChosen((before) => before ?? found[0]?.name ?? null);
      },
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
  }, [client, asked]);

  function choose(agent: string) {
    setChosen(agent);
    setError(null);
  }

  async function start(event: FormEvent) {
    event.preventDefault();
    if (!chosen || busy) return;
    setBusy(true);
    setError(null);
    if (unanswered.current?.agent !== chosen) unanswered.current = { agent: chosen, key: idempotencyKey() };
    try {
      const session = await client.createSession(chosen, unanswered.current.key);
      unanswered.current = null;
      onCreated();
      goTo(sessionHref(session.sessionId));
    } catch (reason) {
      if (!mayHaveHappened(reason)) unanswered.current = null;
      setError(reason);
    } finally {
      setBusy(false);
    }
  }

  return (
    <div className="start">
      <header className="bar">{menu}</header>
      <form className="start-form" onSubmit={(event) => void start(event)}>
        <h1>Start a session</h1>
        <p className="lead">Pick the agent that you want to work with.</p>
        {agents?.length === 0 && <p>No agents are configured. Add one to the gateway's configuration and restart it.</p>}
        {agents !== null && agents.length > 0 && (
          <fieldset className="agents" disabled={busy}>
            <legend className="hidden">Agent</legend>
            {agents.map((agent) => (
              <AgentChoice key={agent.name} agent={agent} chosen={chosen === agent.name} onChoose={() => choose(agent.name)} />
            ))}
          </fieldset>
        )}
        <button className="button primary" type="submit" disabled={!chosen || busy} aria-busy={busy}>
          {busy ? "Starting the agent…" : "Start session"}
        </button>
      </form>
      {error !== null && (
        <Where value={{ client, agent: chosen }}>
          <div className="start-problem">
            <ProblemNote error={error}>
              {agents === null && (
                <button className="button small" type="button" onClick={() => setAsked(asked + 1)}>
                  Try again
                </button>
              )}
            </ProblemNote>
          </div>
        </Where>
      )}
    </div>
  );
}

function AgentChoice({ agent, chosen, onChoose }: { agent: Agent; chosen: boolean; onChoose(): void }) {
  const title = agent.title ?? line(agent.agentInfo?.["title"]) ?? agent.name;
  const version = agent.version ?? line(agent.agentInfo?.["version"]);
  return (
    <label className="agent">
      <input type="radio" name="agent" value={agent.name} checked={chosen} onChange={onChoose} />
      <span className="agent-words">
        <span className="agent-name">
          {title}
          {version && <span className="agent-version">{version}</span>}
        </span>
        {agent.name === "demo" && <span className="agent-description">Built in. It needs no model and shows what an agent can do.</span>}
        {agent.name !== "demo" && title !== agent.name && <span className="agent-description">{agent.name}</span>}
        {agent.pool?.broken && <span className="agent-description warn">It crashed several times lately and may not start.</span>}
      </span>
    </label>
  );
}
