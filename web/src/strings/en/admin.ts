// The page for administrators.

export const title = "Administration";
export const sections = {
  overview: "Overview",
  agents: "Agents",
  storage: "Storage",
  keys: "Keys",
  fleet: "Fleet",
  webhooks: "Webhooks",
  audit: "Audit log",
  configuration: "Configuration",
};
export const download = "Download diagnostics";
export const downloadHint = "The state and the configuration as a file for a bug report. It contains paths, arguments of commands, and what agents wrote to stderr, where only secrets from variables and files are masked.";
export const updated = "Updated at";
export const none = "–";

export const state = "State";
export const ready = "Ready";
export const notReady = "Not ready";
export const draining = "Draining";
export const version = "Version";
export const platform = "Platform";
export const uptime = "Running for";
export const memory = "Memory";
export const openFiles = "Open files";
export const cpu = "Processor time";
export const outOf = (count: number, most: number) => `${count.toLocaleString()} of ${most.toLocaleString()}`;
export const streams = "Open streams";
export const tasks = "Tasks";
export const pending = "Pending deliveries";
export const warnings = "Recent warnings and errors";
export const truncated = (lists: string) => `Too large to be complete: ${lists}.`;
export const noWarnings = "No warnings or errors since the start of the gateway.";
export const time = "Time";
export const level = "Level";
export const warning = "Warning";
export const error = "Error";
export const message = "Message";

export const pool = (processes: number, most: number, idle: number) => `${processes} of ${most} processes, ${idle} idle`;
export const queue = (waiting: number) => (waiting === 0 ? "Nothing waits for a process" : `${waiting} waiting for a process`);
export const lastFailure = "Last failure:";
export const exitCode = (code: number) => `exit code ${code}`;
export const noAgents = "The configuration has no agents.";
export const processes = "Processes";
export const noProcesses = "No process runs.";
export const agent = "Agent";
export const pid = "Process id";
export const started = "Started";
/** By the state of the process. */
export const processStates: Record<string, string> = { starting: "Starting", idle: "Idle", busy: "Works", releasing: "Ends its session", stopping: "Stops" };

export const free = "Free disk space";
export const disk = "Size of the disk";
export const log = "Size of the log";
export const sessions = "Sessions";
export const folder = "Data folder";
export const format = "Format";
export const shard = "Shard";
export const retention = "Retention";
export const largest = "Largest sessions";
export const noSessions = "No sessions yet.";
export const session = "Session";
export const size = "Size";
export const events = "Events";
export const lastActivity = "Last activity";

export const noKeys = "No keys.";
export const name = "Name";
export const user = "User";
export const id = "Id";
export const scopes = "Scopes";
export const kind = "Kind";
/** By the kind of the key. */
export const keyKinds: Record<string, string> = { link: "Link", local: "This machine", named: "Named", admin: "Configuration" };
export const created = "Created";
export const expires = "Expires";
export const lastUsed = "Last used";
export const limits = "Limits, member names, folders";

export const noMembers = "No host has joined the fleet.";
/** By the state of the member. */
export const memberStates: Record<string, string> = { connected: "Connected", reconnecting: "Reconnecting", disconnected: "Disconnected" };
export const memberDrains = (state: string) => `${state}, draining`;
export const changed = "Since";
export const heartbeat = "Last message";
export const latency = "Round trip";
export const milliseconds = (count: number) => `${count} ms`;
export const key = "Key";

export const noWebhooks = "No webhooks.";
export const receiver = "Receiver";
export const active = "Active";
export const gone = "Off: the receiver answered 410";
export const failures = "Failed and pending deliveries";
export const noFailures = (count: number) => `None among the latest ${count} deliveries.`;
export const event = "Event";
/** By the state of the delivery. */
export const deliveryStates: Record<string, string> = { pending: "Pending", failed: "Failed" };
export const attempts = "Attempts";
export const answer = "Last answer";
export const status = (code: number) => `Status ${code}`;
export const next = "Next attempt";

export const filterEvents = "Events";
/** By the filter of types. */
export const eventGroups: Record<string, string> = {
  "": "All events",
  "key.,folder.,link.,ticket.": "Keys, links and tickets",
  "request.": "Rejected requests",
  "permission.,agent.": "Permissions",
  "sign_in.": "Sign-ins",
  "webhook.,broadcast.": "Webhooks and broadcasts",
  "isolation.": "Isolation",
  "fleet.": "Fleet",
  "audit.": "Retention",
};
export const refresh = "Refresh";
export const noEvents = "No such event in this part of the log.";
export const searched = (from: number, to: number) => (to === 0 ? "The log is empty." : `Events ${from} to ${to} of the log.`);
export const olderEvents = "Older events";
export const actor = "Author";
/** By the kind of the actor. */
export const actors: Record<string, string> = {
  key: "Key",
  client: "Client without a valid key",
  command_line: "Command line",
  policy: "Policy",
  timeout: "Timeout",
  agent: "Agent",
  gateway: "Gateway",
};
export const details = "Details";

export const filterKeys = "Filter keys and values";
export const onlyChanged = "Only values that differ from the default";
export const shown = (count: number, all: number) => `${count} of ${all} keys`;
export const noMatch = "No key matches.";
export const value = "Value";
export const source = "Set by";
