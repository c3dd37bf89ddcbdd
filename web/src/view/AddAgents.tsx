// Adds agents to the gateway, for keys with the scope `admin`: known agents on PATH, and agents of the registry.

import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { type GatewayClient, type InstallableAgent, type Installation, type InstallationState, known, type NewInstallation } from "@acp-gateway/client";
import { visible } from "@acp-gateway/client/read";
import { useReload } from "@acp-gateway/react";
import { sentence } from "../model/explain";
import { strings } from "../strings";
import { Icon } from "./Icon";
import { ProblemNote } from "./ProblemNote";
import { Words } from "./Words";

const IDLE_MS = 15_000;
const RUNNING_MS = 1_000;

interface Props {
  client: GatewayClient;
  /** The names of all agents. */
  names: string[];
  onAdded(agent: string): void;
}

/** `first`: the gateway had no other agent than the demo agent, so that this is the next step. */
export function AddAgents({ first, ...props }: Props & { first: boolean }) {
  const [open, setOpen] = useState(false);
  if (first) {
    return (
      <section className="adding" aria-label={strings.agents.add}>
        <h2>{strings.agents.add}</h2>
        <p className="installable-note">{strings.agents.onlyDemo}</p>
        <Offers {...props} />
      </section>
    );
  }
  return (
    <details className="installable" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{strings.agents.addMore}</summary>
      {open && <Offers {...props} />}
    </details>
  );
}

function Offers({ client, names, onAdded }: Props) {
  const [state, setState] = useState<InstallationState | null>(null);
  /** The agent whose installation this page has seen while it ran. */
  const [watched, setWatched] = useState<string | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const latest = state?.installation ?? null;
  const running = latest !== null && known(latest.status) === "running" ? latest : null;
  const ended = latest !== null && running === null && latest.agent === watched ? latest : null;
  const load = useCallback((signal: AbortSignal) => client.installation({ signal }), [client]);
  const { error, refresh } = useReload(running === null ? IDLE_MS : RUNNING_MS, load, setState);
  const added = ended !== null && known(ended.status) === "succeeded" ? ended.agent : null;
  const onAddedNow = useRef(onAdded);
  onAddedNow.current = onAdded;

  useEffect(() => {
    if (running !== null) setWatched(running.agent);
  }, [running]);
  useEffect(() => {
    if (added !== null) onAddedNow.current(added);
  }, [added]);

  async function add(order: NewInstallation) {
    if (running !== null) return;
    setProblem(null);
    try {
      const installation = await client.install(order);
      setWatched(order.agent);
      setState((before) => before && { ...before, installation });
    } catch (reason) {
      setProblem(reason);
    }
    refresh();
  }

  if (state === null) return error === null ? <p role="status">{strings.panel.loading}</p> : <ProblemNote error={error} />;
  const onPath = state.onPath.filter(({ name }) => !names.includes(name));
  const row = { running, failed: added === null ? ended : null, onAdd: (order: NewInstallation) => void add(order) };
  return (
    <div className="offers">
      <p className="hidden" role="status">
        {running?.step && visible(running.step)}
        {added !== null && strings.agents.added(added)}
      </p>
      {problem !== null && <ProblemNote error={problem} />}
      {ended !== null && added !== null && <Added installation={ended} />}
      {onPath.length > 0 && (
        <>
          <h3>{strings.agents.onMachine}</h3>
          <ul className="task-list">
            {onPath.map(({ name, command, keyVariables }) => (
              <Offer key={name} {...row} title={name} label={strings.agents.addIt(name)} verb={strings.agents.addShort} order={{ agent: name, from: "path" }} keyVariables={keyVariables} inherits>
                <code>{command}</code>
              </Offer>
            ))}
          </ul>
        </>
      )}
      <Registry client={client} registry={state.registry} names={names} row={row} />
    </div>
  );
}

interface Row {
  running: Installation | null;
  failed: Installation | null;
  onAdd(order: NewInstallation): void;
}

function Registry({ client, registry, names, row }: { client: GatewayClient; registry: InstallationState["registry"]; names: string[]; row: Row }) {
  const [agents, setAgents] = useState<InstallableAgent[] | null>(null);
  const [loading, setLoading] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const configured = registry?.configured ?? false;
  // A person has asked for the list before they installed one of its agents.
  const wanted = configured || row.running?.from === "registry";

  const load = useCallback(() => {
    setLoading(true);
    setError(null);
    const loaded = client.installableAgents({ default: true }).then((page) => setAgents(page.agents), setError);
    void loaded.finally(() => setLoading(false));
  }, [client]);
  // A registry that the operator has not named is loaded only when a person asks for it.
  useEffect(() => {
    if (wanted && agents === null) load();
  }, [wanted, agents, load]);

  const others = agents?.filter(({ id }) => !names.includes(id));
  return (
    <>
      <h3>{strings.agents.ofRegistry}</h3>
      {registry === null && (
        <p className="installable-note">
          <Words text={strings.agents.noRegistry} />
        </p>
      )}
      {error !== null && (
        <ProblemNote error={error}>
          <button className="button small" type="button" onClick={load}>
            {strings.common.tryAgain}
          </button>
        </ProblemNote>
      )}
      {registry !== null && !configured && agents === null && error === null && (
        <>
          <button className="button" type="button" aria-disabled={loading} onClick={() => !loading && load()}>
            {strings.agents.showRegistry}
          </button>
          <p className="installable-note">{strings.agents.loadsFrom(visible(registry.source))}</p>
        </>
      )}
      {loading && <p role="status">{strings.agents.loadingRegistry}</p>}
      {others?.length === 0 && <p className="installable-note">{strings.agents.allConfigured}</p>}
      {others !== undefined && others.length > 0 && (
        <ul className="task-list">
          {others.map(({ id, name, version, description, kinds, keyVariables }) => (
            <Offer
              key={id}
              {...row}
              title={name}
              version={version}
              label={strings.agents.installIt(visible(name), visible(version))}
              verb={strings.agents.installShort}
              order={kinds.length > 0 ? { agent: id, from: "registry", version } : null}
              keyVariables={keyVariables}
              inherits={registry?.inherits ?? false}
            >
              {visible(description)}
            </Offer>
          ))}
        </ul>
      )}
    </>
  );
}

interface OfferProps extends Row {
  title: string;
  version?: string;
  /** The whole name of the button, and its visible start. */
  label: string;
  verb: string;
  /** Null for an agent that does not run on this machine. */
  order: NewInstallation | null;
  keyVariables: string[];
  /** Whether the agent receives the variables from the environment of the gateway. */
  inherits: boolean;
  children: ReactNode;
}

function Offer({ title, version, label, verb, order, keyVariables, inherits, running, failed, onAdd, children }: OfferProps) {
  const isRunning = running !== null && running.agent === order?.agent;
  return (
    <li className="task offer">
      <p className="task-title">
        {visible(title)} {version !== undefined && <span className="agent-version">{visible(version)}</span>}
      </p>
      <p className="installable-note">{children}</p>
      {keyVariables.length > 0 && (
        <p className="installable-note">
          <Words text={strings.agents.needsKey(keyVariables, inherits)} />
        </p>
      )}
      {order === null && <p className="installable-note">{strings.agents.notForMachine}</p>}
      {order !== null && (
        <button className="button" type="button" aria-label={label} aria-disabled={running !== null} aria-busy={isRunning} onClick={() => onAdd(order)}>
          {isRunning && <span className="spinner" />}
          {verb}
        </button>
      )}
      {isRunning && <Progress installation={running} />}
      {failed !== null && failed.agent === order?.agent && (
        <div className="problem" role="alert">
          <p className="problem-title">
            <Icon name="failed" /> {strings.agents.addFailed(failed.agent)}
          </p>
          <p className="problem-detail">{sentence(visible(failed.detail ?? ""))}</p>
        </div>
      )}
    </li>
  );
}

function Progress({ installation: { step, bytes, totalBytes } }: { installation: Installation }) {
  return (
    <>
      <p className="installable-note">{sentence(visible(step ?? strings.agents.adding))}</p>
      {bytes !== null && totalBytes !== null && <progress aria-label={strings.agents.download} max={totalBytes} value={bytes} />}
    </>
  );
}

/** The new agent, with the key or the sign-in that it needs. */
function Added({ installation }: { installation: Installation }) {
  const { agent, signIn, keyVariables, receivedVariables, inherits, configFile } = installation;
  const received = keyVariables.filter((name) => receivedVariables.includes(name));
  const key = inherits ? strings.agents.keyInEnvironment(keyVariables) : strings.agents.keyInEntry(keyVariables, agent, visible(configFile ?? ""));
  const methods = signIn.map((name) => visible(name));
  return (
    <div className="added">
      <p className="added-title">
        <Icon name="check" /> {strings.agents.added(agent)}
      </p>
      {received.length > 0 && (
        <p className="installable-note">
          <Words text={strings.agents.usesKey(received)} />
        </p>
      )}
      {received.length === 0 && keyVariables.length > 0 && (
        <p className="installable-note">
          <Words text={key} />
        </p>
      )}
      {received.length === 0 && (methods.length > 0 || keyVariables.length > 0) && (
        <p className="installable-note">{methods.length > 0 ? strings.agents.offersSignIn(methods) : strings.agents.signInLater}</p>
      )}
    </div>
  );
}
