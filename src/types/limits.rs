//! Every limit and deadline with its default, and what happens when it is hit.
//!
//! The configuration may change each of them; no other file holds such a number.

use std::time::Duration;

/// Limits of the gateway as a whole. Limits of one agent are in its entry (`AgentLimits`).
#[derive(Debug, Clone)]
pub struct Limits {
    /// Reading a request's head, and the wait for the first one: then the connection closes.
    pub header: Duration,
    /// A connection without a request, after one: then it closes. Longer than most clients and proxies keep theirs, so that they
    /// close them and none sends a request on one that is just being closed. While more than half of the places are
    /// taken, `header` counts for these too.
    pub connection_idle: Duration,
    /// Reading a request's body: then the connection closes.
    pub body: Duration,
    /// A client that takes nothing of what we write: then the connection closes.
    pub write_stall: Duration,
    /// `session/new` and `session/resume`: then 504, or `prompt.failed` in a turn.
    pub session_new: Duration,
    /// `session/load`, which replays: then 504, or `prompt.failed` in a turn.
    pub session_load: Duration,
    /// The time for which a session is retried that the agent does not restore: then the turn fails, and may be retried.
    pub restore_timeout: Duration,
    /// A replay is over when no history came for this long after the answer to `session/load`: then the prompt is sent.
    pub replay_quiet_interval: Duration,
    /// The longest time for which a prompt is held for the rest of a replay: then the prompt is sent.
    pub replay_quiet_timeout: Duration,
    /// A call to an agent that belongs to no session (its sessions, its sign-in's state, `/rpc`): then 504.
    pub call: Duration,
    /// Such a call while all processes are busy: then 503.
    pub visit_wait: Duration,
    /// A sign-in, by a call or in a terminal: then 504, or the terminal closes.
    pub sign_in: Duration,
    /// Bytes that a terminal of a sign-in may show: then it closes.
    pub sign_in_bytes: usize,
    /// Bytes of a message of a client on a WebSocket: then it closes.
    pub socket_bytes: usize,
    /// A cancelled turn that goes on: then the agent's process ends.
    pub cancel: Duration,
    /// The same in all: then the turn fails with `cancel_timeout`.
    pub cancel_total: Duration,
    /// Stop ladder, after stdin was closed: then TERM.
    pub stop_stdin: Duration,
    /// Stop ladder, after TERM: then KILL.
    pub stop_term: Duration,
    /// The two steps of the ladder while draining.
    pub drain_stdin: Duration,
    pub drain_term: Duration,
    /// Stop ladder, after KILL was ordered: then the keeper itself is killed.
    pub stop_kill: Duration,
    /// From the start of a keeper until it says that the program runs: then the start has failed.
    pub spawn: Duration,
    /// Running turns at a drain: then they are cancelled.
    pub drain: Duration,
    /// Turns that were cancelled at a drain and go on: then the agent's process ends.
    pub drain_cancel: Duration,
    /// An agent that takes nothing of what we write to its stdin: then it ends.
    pub stdin_stall: Duration,
    /// Lines that wait for an agent's stdin: then the sender is refused.
    pub stdin_lines: usize,
    /// Places beyond them, for cancel and answers alone: then the sender is refused.
    pub stdin_reserved: usize,
    /// How long an `Idempotency-Key` is known.
    pub idempotency: Duration,
    /// A ticket nobody used: then 401.
    pub ticket_unused: Duration,
    /// A ticket after its last stream ended: then 401.
    pub ticket_after: Duration,
    /// A link key nobody used: then 401.
    pub link_key_unused: Duration,
    /// Back-off after a crash: from, and to; a breaker opens at `breaker_crashes` in `breaker_window`: then 503.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub breaker_crashes: u32,
    pub breaker_window: Duration,
    /// Keys of one kind that are kept: then a named one is refused, and the link key used longest ago goes.
    pub named_keys: usize,
    pub link_keys: usize,
    /// Tickets of one principal: then the oldest that no stream uses goes. Each user of a backend may need one.
    pub tickets: usize,
    /// Bytes of a request's body: then 413.
    pub body_bytes: usize,
    /// Bytes of a body that is a prompt, or the answer to a request of an agent: then 413.
    pub prompt_bytes: usize,
    /// Bytes of a file that is uploaded, or that the gateway reads or writes for an agent: then 413, or an error.
    pub file_bytes: u64,
    /// Files that the gateway reads or writes for a session's agent, or whose answers the agent has not taken: then the
    /// next ones wait. And bytes of what those that wait want written: then the agent gets an error.
    pub file_answers: usize,
    pub file_wanted_bytes: usize,
    /// Bytes of a text that goes into a prompt by itself when it is attached: a longer one is a link.
    pub attached_text_bytes: u64,
    /// Names that a search looks at for one page of files: then there is more.
    pub file_names: usize,
    /// Nesting of JSON, from clients (422) and from agents (a bad line).
    pub json_depth: usize,
    /// Bytes of a batch from an agent to its session, and how many may wait: then the pipe is not read.
    pub batch_bytes: usize,
    pub batches: usize,
    /// Commands to a session that may wait: then 503.
    pub commands: usize,
    /// Bytes that wait for their commit: then a session takes no batches.
    pub pending_bytes: usize,
    /// Writes of records beside the sessions' that may wait for their commit: then the next waits for its place.
    pub writes: usize,
    /// Bytes of a run, and of a transaction; a larger event goes alone.
    pub run_bytes: usize,
    pub transaction_bytes: usize,
    /// Bad lines of an agent in a minute: then it ends.
    pub bad_lines_per_minute: u32,
    /// Bytes of an agent's stdout before it answers `initialize`: then it ends. Bad lines do not count until then.
    pub start_output_bytes: usize,
    /// Updates that came before the session they name is known: then further ones are dropped.
    pub early_updates: usize,
    /// Bytes of an agent's stderr that are kept: the last ones.
    pub stderr_bytes: usize,
    /// Prompts that wait in a session: then 429.
    pub queued_prompts: usize,
    /// The age of a prompt that a restart finds in a queue: an older one fails with `prompt_expired`.
    pub queued_prompt_max_age: Duration,
    /// Requests of an agent that wait for an answer in a session: then they are answered with an error.
    pub pending_requests: usize,
    /// A file or terminal that a client serves: then the agent gets an error. And a request that only clients may know,
    /// likewise.
    pub client_answer: Duration,
    pub extension_answer: Duration,
    /// Terminals of a session that the gateway runs and the agent has not released: then the agent gets an error.
    pub terminals: usize,
    /// Bytes of a terminal's output that are kept for the agent where it names none, the most that it may name, and
    /// those of all terminals: then the oldest goes.
    pub terminal_bytes: usize,
    pub terminal_max_bytes: usize,
    pub terminals_bytes: usize,
    /// Bytes of a terminal's output in the log: then only its end is logged, when the command has ended.
    pub terminal_log_bytes: u64,
    /// A terminal that runs on while there is no turn: then it is killed.
    pub terminal_alone: Duration,
    /// Places in an agent's line: then 503. And how long one may stand there: then 504.
    pub line_places: usize,
    pub line_wait: Duration,
    /// A client that wants a process for no turn (attach, a setting, a call) while none is free or starts: then 503.
    pub settings_wait: Duration,
    /// Asking an agent in the background to delete a session that no process holds: then it keeps it.
    pub delete_wait: Duration,
    /// For each principal, unless its keys set another value: then 429. A backend with one key is one principal, so the
    /// defaults are those of a backend with 500 users.
    pub prompts_per_minute: u32,
    pub requests_per_minute: u32,
    pub streams: usize,
    pub live_sessions: usize,
    /// Prompts, and other calls, of a principal that wait for a process of one agent.
    pub max_queued_prompts: usize,
    /// Connections in all, and from one address: then refused.
    pub connections: usize,
    pub connections_per_address: usize,
    /// Bytes that hyper buffers for a connection, the head of a request among them: then 431.
    pub http_buffer_bytes: usize,
    /// Bytes that the kernel keeps for a client that reads slowly: then the stream waits.
    pub send_buffer_bytes: usize,
    /// The same for a stream of events that has its socket to itself: what many readers of one log have on their way does
    /// not fit into a processor's cache, and each byte costs more for it.
    pub stream_buffer_bytes: usize,
    /// Bytes of a page of events: then there is more.
    pub page_bytes: usize,
    /// HTTP/2: requests at a time, resets that wait, bytes of a request's head: then refused.
    pub h2_streams: u32,
    pub h2_pending_resets: usize,
    pub h2_header_bytes: u32,
    /// HTTP/2: requests at a time on a connection of which no request has shown a key: then the next ones wait.
    pub h2_unauthenticated_streams: u32,
    /// HTTP/2: bytes of responses that clients have not taken, of a connection and in all: then the next requests of
    /// connections that have such bytes wait.
    pub connection_unsent_bytes: usize,
    pub unsent_bytes: usize,
    /// Wrong keys from one address in a minute: then 429.
    pub bad_keys_per_minute: u32,
    /// Bytes of committed runs in memory, of a session and in all: then readers go back to the store.
    pub tail_bytes: usize,
    pub tails_bytes: usize,
    /// Reads of the store at a time, and bytes of what a reader is given of one.
    pub store_readers: usize,
    pub store_page_bytes: usize,
    /// Bytes that a reader who goes on reads of the store at a time, a quarter of the next at most; and bytes that are kept of
    /// it for others who replay the same log.
    pub read_ahead_bytes: usize,
    pub pages_bytes: usize,
    /// What one session may write in an hour, in bytes and in events: then its agent's process ends, its turn fails, and
    /// prompts get 429 until the hour is over.
    pub session_bytes_per_hour: u64,
    pub session_events_per_hour: u64,
    /// Bytes of a log that a dead gateway left open and that is checked before the next one serves, on disk and as its
    /// readers get them: what is larger is checked while it serves already.
    pub check_bytes: u64,
    /// Retention: bytes of a session's log as it is stored, age after its last event: then the oldest goes. And bytes of
    /// all logs: then the oldest of the largest go.
    pub session_log_bytes: u64,
    pub log_age: Duration,
    pub logs_bytes: u64,
    /// A step of the wall clock that counts as a jump: until it has held for `clock_settle`, nothing ends by its age.
    pub clock_jump: Duration,
    pub clock_settle: Duration,
    /// How long `session.deleted` stays on `/v1/events`.
    pub tombstone: Duration,
    /// Free disk below which prompts get 507, as a part of the disk (percent) and in bytes: the larger holds.
    pub free_disk_percent: u64,
    pub free_disk_bytes: u64,
    /// Bytes of the disk that are set aside. A full disk releases them, so that ends of turns, cancels and deletes commit; until they
    /// are set aside again prompts get 507.
    pub disk_reserve_bytes: u64,
    /// Between two comments on a stream that is otherwise still.
    pub keep_alive: Duration,
    /// A session without process, turn or reader leaves memory.
    pub session_idle: Duration,
}

impl Default for Limits {
    #[expect(clippy::too_many_lines, reason = "one line for each limit")]
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            header: seconds(10),
            connection_idle: seconds(180),
            body: seconds(30),
            write_stall: seconds(30),
            session_new: seconds(60),
            session_load: seconds(300),
            restore_timeout: seconds(60),
            replay_quiet_interval: Duration::from_millis(300),
            replay_quiet_timeout: seconds(30),
            call: seconds(60),
            visit_wait: seconds(10),
            sign_in: seconds(600),
            sign_in_bytes: 8 << 20,
            socket_bytes: 64 << 10,
            cancel: seconds(15),
            cancel_total: seconds(30),
            stop_stdin: seconds(5),
            stop_term: seconds(5),
            drain_stdin: seconds(2),
            drain_term: seconds(1),
            stop_kill: seconds(3),
            spawn: seconds(10),
            drain: seconds(5),
            drain_cancel: seconds(1),
            stdin_stall: seconds(10),
            stdin_lines: 64,
            stdin_reserved: 128,
            idempotency: seconds(24 * 3600),
            ticket_unused: seconds(60),
            ticket_after: seconds(600),
            link_key_unused: seconds(30 * 24 * 3600),
            backoff_min: seconds(1),
            backoff_max: seconds(60),
            breaker_crashes: 5,
            breaker_window: seconds(120),
            named_keys: 1000,
            link_keys: 100,
            tickets: 4096,
            body_bytes: 1 << 20,
            prompt_bytes: 10 << 20,
            file_bytes: 16 << 20,
            file_answers: 4,
            file_wanted_bytes: 64 << 20,
            attached_text_bytes: 64 << 10,
            file_names: 20_000,
            json_depth: 128,
            batch_bytes: 1 << 20,
            batches: 8,
            commands: 64,
            pending_bytes: 1 << 20,
            writes: 256,
            run_bytes: 32 << 10,
            transaction_bytes: 4 << 20,
            bad_lines_per_minute: 1000,
            start_output_bytes: 16 << 20,
            early_updates: 100,
            stderr_bytes: 64 << 10,
            queued_prompts: 8,
            queued_prompt_max_age: seconds(3600),
            pending_requests: 64,
            client_answer: seconds(300),
            extension_answer: seconds(30),
            terminals: 16,
            terminal_bytes: 1 << 20,
            terminal_max_bytes: 4 << 20,
            terminals_bytes: 64 << 20,
            terminal_log_bytes: 16 << 20,
            terminal_alone: seconds(3600),
            line_places: 4096,
            line_wait: seconds(3600),
            settings_wait: seconds(20),
            delete_wait: seconds(120),
            prompts_per_minute: 6000,
            requests_per_minute: 60_000,
            streams: 2000,
            live_sessions: 2000,
            max_queued_prompts: 2000,
            connections: 4096,
            connections_per_address: 2048,
            http_buffer_bytes: 64 << 10,
            send_buffer_bytes: 256 << 10,
            stream_buffer_bytes: 128 << 10,
            page_bytes: 4 << 20,
            h2_streams: 128,
            h2_pending_resets: 20,
            h2_header_bytes: 16 << 10,
            h2_unauthenticated_streams: 16,
            connection_unsent_bytes: 8 << 20,
            unsent_bytes: 256 << 20,
            bad_keys_per_minute: 10,
            tail_bytes: 2 << 20,
            tails_bytes: 64 << 20,
            store_readers: 4,
            store_page_bytes: 32 << 10,
            read_ahead_bytes: 256 << 10,
            pages_bytes: 8 << 20,
            session_bytes_per_hour: 512 << 20,
            session_events_per_hour: 2_000_000,
            check_bytes: 256 << 20,
            session_log_bytes: 512 << 20,
            log_age: seconds(30 * 24 * 3600),
            logs_bytes: 10 << 30,
            clock_jump: seconds(3600),
            clock_settle: seconds(24 * 3600),
            tombstone: seconds(7 * 24 * 3600),
            free_disk_percent: 5,
            free_disk_bytes: 1 << 30,
            disk_reserve_bytes: 64 << 20,
            keep_alive: seconds(15),
            session_idle: seconds(60),
        }
    }
}

/// Bytes of one raw member (modes, options, commands, a plan) in a session's snapshot: a larger one is left out of
/// it, and the log still has it. Fixed, since what was folded yesterday must not differ from what is folded today.
pub const FOLDED_MEMBER_BYTES: usize = 1 << 20;
/// Plans of a session that its snapshot remembers by their ids: then the one that changed longest ago goes.
pub const FOLDED_PLANS: usize = 16;
/// Tool calls and terminals of an agent that can be cancelled by themselves, of one session: then the one that was
/// told of longest ago cannot.
pub const CANCEL_TARGETS: usize = 256;
/// Subagents of a session that its process may have: then the updates of further ones are dropped.
pub const KNOWN_SUBAGENTS: usize = 1024;
/// Bytes of the agent's id of a subagent: a longer one is not heard.
pub const SUBAGENT_ID_BYTES: usize = 1024;
/// Subagents that a session's snapshot shows: then the one that was told of longest ago goes.
pub const FOLDED_SUBAGENTS: usize = 64;
/// Bytes of what a snapshot shows of one subagent: what does not fit is left out.
pub const FOLDED_SUBAGENT_BYTES: usize = 16 << 10;
/// Bytes of a form's `requestedSchema`, and its properties: then the agent's request is refused.
pub const FORM_BYTES: usize = 256 << 10;
pub const FORM_FIELDS: usize = 128;
/// Bytes of the content that answers a form: then 422.
pub const FORM_ANSWER_BYTES: usize = 64 << 10;
/// What a pattern of a form may cost: bytes of its compiled form, and of its text if it looks around (then the request
/// is refused); steps back while an answer is matched (then 422).
pub const FORM_PATTERN_BYTES: usize = 1 << 20;
pub const FORM_PATTERN_LENGTH: usize = 1024;
pub const FORM_PATTERN_BACKTRACKS: usize = 10_000;
/// Bytes of an `elicitationId`: then the agent's request is refused.
pub const ELICITATION_ID_BYTES: usize = 1024;
/// Readers of one thread that are told before it runs those of them who were woken: what was just touched is still near the
/// processor then, and the first of many need not wait for all.
pub const NOTIFY_BATCH: usize = 64;
/// Readers whom the log's writer tells itself when it has nothing else to do: no more.
pub const MAX_WRITER_NOTIFICATIONS: usize = 4;
/// Bytes of a title: the rest is cut off.
pub const TITLE_BYTES: usize = 2048;
/// Bytes of the agent's messages in one folded turn, and as many of everything else in it: the rest is left out, and the
/// turn is `truncated`. A longer text is truncated.
pub const FOLDED_TURN_BYTES: usize = 8 << 20;
/// Sessions of the agent that the pool remembers for one process: then the one held longest ago is forgotten.
pub const REMEMBERED_SESSIONS: usize = 256;
/// How often a session is asked for that the agent does not restore for a reason other than its use elsewhere: then the
/// turn fails.
pub const RESTORE_ATTEMPTS: u32 = 4;
/// The pause before a session is asked for again: it doubles from the first to the last.
pub const RESTORE_BACKOFF_MIN: Duration = Duration::from_millis(250);
pub const RESTORE_BACKOFF_MAX: Duration = Duration::from_secs(4);
/// The longest pause before the first load of a session at an agent that must not load it at once.
pub const LOAD_DEFERRAL_MAX: Duration = Duration::from_mins(1);
/// How long processes of a closed session may take to end before their agent's process is stopped instead of reused,
/// and how often they are looked at.
pub const REUSE_GRACE: Duration = Duration::from_secs(1);
pub const REUSE_INTERVAL: Duration = Duration::from_millis(50);
