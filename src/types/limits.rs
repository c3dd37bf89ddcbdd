//! Every limit and timeout, its default, and the effect of reaching it.
//!
//! The configuration may change each value. No other file defines such a number.

use std::time::Duration;

/// Limits of the whole gateway. The limits of one agent are in its entry (`AgentLimits`).
#[derive(Debug, Clone)]
pub struct Limits {
    /// The time to read the head of a request, and to wait for the first request. When it expires, the
    /// connection closes.
    pub header: Duration,
    /// The time that a connection may be idle after a request. When it expires, the connection closes. The
    /// default is longer than the idle timeout of most clients and proxies. Thus the client closes the
    /// connection first, and no request arrives on a connection that is closing. While more than half of the
    /// connection slots are in use, `header` applies instead.
    pub connection_idle: Duration,
    /// The time to read the body of a request. When it expires, the connection closes.
    pub body: Duration,
    /// The time for which a client may read nothing of a response. When it expires, the connection closes.
    pub write_stall: Duration,
    /// Timeout of `session/new` and `session/resume`. When it expires, the request fails with 504, a turn
    /// with `prompt.failed`.
    pub session_new: Duration,
    /// Timeout of `session/load`, which replays the history. When it expires, the request fails with 504, a
    /// turn with `prompt.failed`.
    pub session_load: Duration,
    /// The time for which the gateway retries to restore a session at the agent. When it expires, the turn
    /// fails with a retryable error.
    pub restore_timeout: Duration,
    /// A replay is complete if no history arrives for this time after the answer to `session/load`. Then the
    /// gateway sends the prompt.
    pub replay_quiet_interval: Duration,
    /// The longest time for which a prompt waits for the end of a replay. When it expires, the gateway sends
    /// the prompt.
    pub replay_quiet_timeout: Duration,
    /// Timeout of a call to an agent outside a session (list of sessions, sign-in state, `/rpc`). When it
    /// expires, the call fails with 504.
    pub call: Duration,
    /// The time for which such a call waits while all processes are busy. When it expires, the call fails
    /// with 503.
    pub visit_wait: Duration,
    /// Timeout of a sign-in. When it expires, a call fails with 504, and a terminal closes.
    pub sign_in: Duration,
    /// The number of bytes that a terminal of a sign-in may print. Beyond it, the terminal closes.
    pub sign_in_bytes: usize,
    /// The size of a client's WebSocket message in bytes. A larger message closes the connection.
    pub socket_bytes: usize,
    /// The time that a cancelled turn may continue. When it expires, the gateway stops the agent's process.
    pub cancel: Duration,
    /// The total time that a cancelled turn may last. When it expires, the turn fails with `cancel_timeout`.
    pub cancel_total: Duration,
    /// Graceful stop: the time between closing stdin and TERM.
    pub stop_stdin: Duration,
    /// Graceful stop: the time between TERM and KILL.
    pub stop_term: Duration,
    /// The same two steps during a drain.
    pub drain_stdin: Duration,
    pub drain_term: Duration,
    /// Graceful stop: the time after KILL, before the gateway kills the supervisor itself.
    pub stop_kill: Duration,
    /// The time from the start of a supervisor until it reports that the program runs. When it expires, the
    /// start fails.
    pub spawn: Duration,
    /// Drain: the time that running turns have to finish. When it expires, the gateway cancels them.
    pub drain: Duration,
    /// Drain: the time that cancelled turns have to end. When it expires, the gateway stops the agent's
    /// process.
    pub drain_cancel: Duration,
    /// The time for which an agent may read nothing from its stdin. When it expires, the gateway stops the
    /// agent.
    pub stdin_stall: Duration,
    /// The number of lines that may wait for an agent's stdin. Beyond it, the gateway rejects the sender.
    pub stdin_lines: usize,
    /// Additional lines that only cancels and answers may use. Beyond them, the gateway rejects the sender.
    pub stdin_reserved: usize,
    /// The time for which the gateway remembers an `Idempotency-Key`.
    pub idempotency: Duration,
    /// The lifetime of an unused ticket. After it, requests with the ticket fail with 401.
    pub ticket_unused: Duration,
    /// The lifetime of a ticket after its last stream ended. After it, requests with the ticket fail with
    /// 401.
    pub ticket_after: Duration,
    /// The lifetime of an unused link key. After it, requests with the key fail with 401.
    pub link_key_unused: Duration,
    /// The back-off after a crash grows from `backoff_min` to `backoff_max`. After `breaker_crashes` crashes
    /// within `breaker_window`, the breaker opens and requests fail with 503.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub breaker_crashes: u32,
    pub breaker_window: Duration,
    /// The number of keys of each kind. Beyond it, the gateway rejects a new named key, and evicts the least
    /// recently used link key.
    pub named_keys: usize,
    pub link_keys: usize,
    /// The number of tickets of one principal. Beyond it, the gateway evicts the oldest ticket without a
    /// stream. A backend may need one ticket for each of its users.
    pub tickets: usize,
    /// The size of a request body in bytes. A larger body fails with 413.
    pub body_bytes: usize,
    /// The size in bytes of a body with a prompt or with the answer to an agent's request. A larger body
    /// fails with 413.
    pub prompt_bytes: usize,
    /// The size in bytes of an uploaded file, and of a file that an agent reads or writes through the
    /// gateway. A larger upload fails with 413, and an agent receives an error.
    pub file_bytes: u64,
    /// `file_answers` is the number of concurrent file requests of a session's agent. It includes answers that the
    /// agent has not read. Further requests wait. `file_wanted_bytes` limits the content of the waiting write
    /// requests. Beyond it, the agent receives an error.
    pub file_answers: usize,
    pub file_wanted_bytes: usize,
    /// The size in bytes up to which an attached text becomes part of the prompt. A longer text is attached
    /// as a link.
    pub attached_text_bytes: u64,
    /// The number of names that a file search examines for one page. Beyond it, the page ends and a cursor
    /// continues the search.
    pub file_names: usize,
    /// The nesting depth of JSON. Deeper JSON from a client fails with 422, and deeper JSON from an agent is
    /// an invalid line.
    pub json_depth: usize,
    /// The size in bytes of a batch from an agent to its session, and the number of waiting batches. Beyond
    /// it, the gateway stops reading the agent's stdout.
    pub batch_bytes: usize,
    pub batches: usize,
    /// The number of commands that may wait for a session. Beyond it, requests fail with 503.
    pub commands: usize,
    /// The number of bytes of a session that may wait for their commit. Beyond it, the session accepts no
    /// batches.
    pub pending_bytes: usize,
    /// The number of record writes outside sessions that may wait for their commit. Beyond it, the next write
    /// waits.
    pub writes: usize,
    /// The size in bytes of a run, and of a transaction. A larger event forms its own run.
    pub run_bytes: usize,
    pub transaction_bytes: usize,
    /// The number of invalid lines of an agent in a minute. Beyond it, the gateway stops the agent.
    pub bad_lines_per_minute: u32,
    /// The number of bytes that an agent may print to stdout before it answers `initialize`. Beyond it, the
    /// gateway stops the agent. Invalid lines count only after this answer.
    pub start_output_bytes: usize,
    /// The number of updates that the gateway keeps for a session id that it does not know yet. Further
    /// updates are discarded.
    pub early_updates: usize,
    /// The number of bytes of an agent's stderr that the gateway keeps. The last bytes are kept.
    pub stderr_bytes: usize,
    /// The number of prompts that may wait in a session. Beyond it, prompts fail with 429.
    pub queued_prompts: usize,
    /// The maximum age of a queued prompt after a restart. An older prompt fails with `prompt_expired`.
    pub queued_prompt_max_age: Duration,
    /// The number of requests of an agent that may wait for an answer in a session. Beyond it, the agent
    /// receives an error.
    pub pending_requests: usize,
    /// `client_answer` is the time that a client has to serve a file or terminal request. `extension_answer`
    /// is the time for an extension request, which only clients can answer. When it expires, the agent
    /// receives an error.
    pub client_answer: Duration,
    pub extension_answer: Duration,
    /// The number of terminals that the gateway runs for a session and the agent has not released. Beyond it,
    /// the agent receives an error.
    pub terminals: usize,
    /// The number of bytes of terminal output that the gateway keeps. `terminal_bytes` is the default of a
    /// terminal, and `terminal_max_bytes` is the maximum that an agent may request. `terminals_bytes` is the total
    /// of all terminals. Beyond it, the oldest output is discarded.
    pub terminal_bytes: usize,
    pub terminal_max_bytes: usize,
    pub terminals_bytes: usize,
    /// The number of bytes of a terminal's output in the log. Beyond it, only the end of the output is
    /// logged, after the command has ended.
    pub terminal_log_bytes: u64,
    /// The time that a terminal may run without a turn. When it expires, the gateway kills the command.
    pub terminal_alone: Duration,
    /// The number of places in an agent's wait queue; beyond it, requests fail with 503. `line_wait` is the
    /// time that a request may wait there; when it expires, the request fails with 504.
    pub line_places: usize,
    pub line_wait: Duration,
    /// The time for which a request outside a turn (attach, mode, option, call) waits for a process. When it
    /// expires, the request fails with 503.
    pub settings_wait: Duration,
    /// The time for which the gateway tries to delete a session without a process at the agent. When it
    /// expires, the agent keeps the session.
    pub delete_wait: Duration,
    /// Limits for each principal, unless its keys set other values. Beyond them, requests fail with 429. A
    /// backend with one key is one principal, so the defaults suit a backend with 500 users.
    pub prompts_per_minute: u32,
    pub requests_per_minute: u32,
    pub streams: usize,
    pub live_sessions: usize,
    /// The number of prompts, and of other calls, of one principal that may wait for a process of one agent.
    pub max_queued_prompts: usize,
    /// The total number of connections, and the number from one address. Further connections are refused.
    pub connections: usize,
    pub connections_per_address: usize,
    /// The number of bytes that hyper buffers for a connection, including the head of a request. A larger
    /// head fails with 431.
    pub http_buffer_bytes: usize,
    /// The size in bytes of the kernel's send buffer for a slow client. When it is full, the stream waits.
    pub send_buffer_bytes: usize,
    /// The send buffer in bytes of an event stream on its own socket. It is smaller, because the data in
    /// flight to many readers of one log exceeds the processor's cache and then costs more for each byte.
    pub stream_buffer_bytes: usize,
    /// The size in bytes of a page of events. A cursor continues a larger result.
    pub page_bytes: usize,
    /// HTTP/2: the number of concurrent requests, the number of pending resets, and the size in bytes of a
    /// request head. Beyond them, the gateway rejects the request.
    pub h2_streams: u32,
    pub h2_pending_resets: usize,
    pub h2_header_bytes: u32,
    /// HTTP/2: the number of concurrent requests on a connection without an authenticated request. Further
    /// requests wait.
    pub h2_unauthenticated_streams: u32,
    /// HTTP/2: the number of response bytes that clients have not read, for one connection and in total.
    /// Beyond it, new requests on connections with such bytes wait.
    pub connection_unsent_bytes: usize,
    pub unsent_bytes: usize,
    /// The number of wrong keys from one address in a minute. Beyond it, requests fail with 429.
    pub bad_keys_per_minute: u32,
    /// The number of bytes of committed runs in memory, for one session and in total. Beyond it, readers read
    /// from the store.
    pub tail_bytes: usize,
    pub tails_bytes: usize,
    /// The number of concurrent reads of the store, and the size in bytes of the page that one read returns.
    pub store_readers: usize,
    pub store_page_bytes: usize,
    /// `read_ahead_bytes` is the number of bytes that a sequential reader prefetches from the store, at most a
    /// quarter of `pages_bytes`. `pages_bytes` is the size of the cache for other readers of the same log.
    pub read_ahead_bytes: usize,
    pub pages_bytes: usize,
    /// The bytes and events that one session may write in an hour. Beyond it, the gateway stops the agent's
    /// process, the turn fails, and prompts fail with 429 until the hour ends.
    pub session_bytes_per_hour: u64,
    pub session_events_per_hour: u64,
    /// The number of bytes, on disk and decoded, up to which a log that a crashed gateway left open is
    /// checked before the start. A larger log is checked in the background while the gateway serves.
    pub check_bytes: u64,
    /// Retention: the stored bytes of a session's log, and its age after the last event; beyond it, the
    /// oldest events are deleted. `logs_bytes` is the total of all logs; beyond it, the oldest events of the
    /// largest logs are deleted.
    pub session_log_bytes: u64,
    pub log_age: Duration,
    pub logs_bytes: u64,
    /// The step of the wall clock that counts as a jump. Nothing expires by age until the jump has persisted
    /// for `clock_settle`.
    pub clock_jump: Duration,
    pub clock_settle: Duration,
    /// The time for which `session.deleted` remains on `/v1/events`.
    pub tombstone: Duration,
    /// The free disk space below which prompts fail with 507, in percent of the disk and in bytes. The larger
    /// value applies.
    pub free_disk_percent: u64,
    pub free_disk_bytes: u64,
    /// The number of bytes of disk space that the gateway reserves. A full disk releases the reserve, so that
    /// ends of turns, cancels and deletes still commit. Prompts fail with 507 until the gateway has reserved
    /// the space again.
    pub disk_reserve_bytes: u64,
    /// The interval between two keep-alive comments on a stream without other data.
    pub keep_alive: Duration,
    /// The time after which the gateway evicts a session without a process, a turn or a reader from memory.
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

/// The size in bytes of one raw member (modes, options, commands, a plan) in a session's snapshot. The
/// snapshot omits a larger member, and the log still contains it. The value is a constant, so that folding
/// the same events always yields the same snapshot.
pub const FOLDED_MEMBER_BYTES: usize = 1 << 20;
/// The number of plans that a session's snapshot remembers by id. Beyond it, the least recently changed plan
/// is evicted.
pub const FOLDED_PLANS: usize = 16;
/// The number of cancellable tool calls and terminals that the gateway remembers for a session. Beyond it,
/// the least recently updated one can no longer be cancelled by itself.
pub const CANCEL_TARGETS: usize = 256;
/// The number of subagents that a session's process may have. Updates of further subagents are discarded.
pub const KNOWN_SUBAGENTS: usize = 1024;
/// The size in bytes of the agent's id of a subagent. Updates with a longer id are ignored.
pub const SUBAGENT_ID_BYTES: usize = 1024;
/// The number of subagents in a session's snapshot. Beyond it, the least recently updated subagent is
/// evicted.
pub const FOLDED_SUBAGENTS: usize = 64;
/// The size in bytes of one subagent in a snapshot. Members beyond it are omitted.
pub const FOLDED_SUBAGENT_BYTES: usize = 16 << 10;
/// The size in bytes of a form's `requestedSchema`, and the number of its properties. A larger form is
/// rejected with an error to the agent.
pub const FORM_BYTES: usize = 256 << 10;
pub const FORM_FIELDS: usize = 128;
/// The size in bytes of the answer to a form. A larger answer fails with 422.
pub const FORM_ANSWER_BYTES: usize = 64 << 10;
/// Cost limits of a pattern in a form. `FORM_PATTERN_BYTES` is the size of the compiled pattern, and
/// `FORM_PATTERN_LENGTH` is the length of a pattern with look-around. A larger pattern is rejected with an error
/// to the agent. `FORM_PATTERN_BACKTRACKS` limits the steps while an answer is matched. Beyond it, the answer
/// fails with 422.
pub const FORM_PATTERN_BYTES: usize = 1 << 20;
pub const FORM_PATTERN_LENGTH: usize = 1024;
pub const FORM_PATTERN_BACKTRACKS: usize = 10_000;
/// The size in bytes of an `elicitationId`. A request with a longer id is rejected with an error to the
/// agent.
pub const ELICITATION_ID_BYTES: usize = 1024;
/// The number of readers of one thread that are notified before the woken readers run. Their data is then
/// still in the processor's cache, and the first reader does not wait for all others.
pub const NOTIFY_BATCH: usize = 64;
/// The largest number of readers that the log's writer notifies itself while it is idle.
pub const MAX_WRITER_NOTIFICATIONS: usize = 4;
/// The size in bytes of a title. A longer title is truncated.
pub const TITLE_BYTES: usize = 2048;
/// The size in bytes of the agent's messages in one folded turn, and of all its other items. Further items
/// are omitted, a longer text is truncated, and the turn is marked as `truncated`.
pub const FOLDED_TURN_BYTES: usize = 8 << 20;
/// The number of the agent's sessions that the pool remembers for one process. Beyond it, the pool forgets
/// the session that was leased longest ago.
pub const REMEMBERED_SESSIONS: usize = 256;
/// The number of attempts to restore a session, unless another client uses the session. After the last
/// attempt, the turn fails.
pub const RESTORE_ATTEMPTS: u32 = 4;
/// The back-off between two attempts to restore a session. It doubles from the minimum to the maximum.
pub const RESTORE_BACKOFF_MIN: Duration = Duration::from_millis(250);
pub const RESTORE_BACKOFF_MAX: Duration = Duration::from_secs(4);
/// The longest delay before the first load of a session at an agent that must not load a new session
/// immediately.
pub const LOAD_DEFERRAL_MAX: Duration = Duration::from_mins(1);
/// `REUSE_GRACE` is the time that child processes of a closed session have to end. When it expires, the
/// gateway stops the agent's process instead of reusing it. `REUSE_INTERVAL` is the interval between two
/// checks.
pub const REUSE_GRACE: Duration = Duration::from_secs(1);
pub const REUSE_INTERVAL: Duration = Duration::from_millis(50);
