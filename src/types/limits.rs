//! Every limit and timeout, its default, and the effect of reaching it.
//!
//! The configuration sets the limits that have a key. All other limits are constant in release builds, and the
//! section `[testing]` of debug builds sets them in tests. No other file defines such a number.

use std::time::Duration;

/// Limits of the whole gateway. The limits of one agent are in its entry (`AgentLimits`).
#[derive(Debug, Clone)]
pub struct Limits {
    /// The time to read the head of a request, and to wait for the first request. When it expires, the
    /// connection closes.
    pub header_timeout: Duration,
    /// The time that a connection may be idle after a request. When it expires, the connection closes. The
    /// default is longer than the idle timeout of most clients and proxies. Thus the client closes the
    /// connection first, and no request arrives on a connection that is closing. While more than half of the
    /// connection slots are in use, `header_timeout` applies instead.
    pub connection_idle_timeout: Duration,
    /// The time to read the body of a request. When it expires, the connection closes.
    pub body_timeout: Duration,
    /// The time for which a client may read nothing of a response. When it expires, the connection closes.
    pub write_stall_timeout: Duration,
    /// Timeout of `session/new` and `session/resume`. When it expires, the request fails with 504, a turn
    /// with `prompt.failed`.
    pub session_new_timeout: Duration,
    /// Timeout of `session/load`, which replays the history. When it expires, the request fails with 504, a
    /// turn with `prompt.failed`.
    pub session_load_timeout: Duration,
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
    pub call_timeout: Duration,
    /// The time for which such a call waits while all processes are busy. When it expires, the call fails
    /// with 503.
    pub short_lease_timeout: Duration,
    /// Timeout of a sign-in. When it expires, a call fails with 504, and a terminal closes.
    pub sign_in_timeout: Duration,
    /// The number of bytes that a terminal of a sign-in may print. Beyond it, the terminal closes.
    pub max_sign_in_output_bytes: usize,
    /// The size of a client's WebSocket message in bytes. A larger message closes the connection.
    pub max_websocket_message_bytes: usize,
    /// The time that a cancelled turn may continue. When it expires, the gateway stops the agent's process.
    pub cancel_timeout: Duration,
    /// The total time that a cancelled turn may last. When it expires, the turn fails with `cancel_timeout`.
    pub cancel_total_timeout: Duration,
    /// Graceful stop: the time between closing stdin and TERM.
    pub stop_stdin_timeout: Duration,
    /// Graceful stop: the time between TERM and KILL.
    pub stop_term_timeout: Duration,
    /// The same two steps during a drain.
    pub drain_stdin_timeout: Duration,
    pub drain_term_timeout: Duration,
    /// Graceful stop: the time after KILL, before the gateway kills the supervisor itself.
    pub stop_kill_timeout: Duration,
    /// The time from the start of a supervisor until it reports that the program runs. When it expires, the
    /// start fails.
    pub spawn_timeout: Duration,
    /// Drain: the time that running turns have to finish. When it expires, the gateway cancels them.
    pub drain_timeout: Duration,
    /// Drain: the time that cancelled turns have to end. When it expires, the gateway stops the agent's
    /// process.
    pub drain_cancel_timeout: Duration,
    /// The time for which an agent may read nothing from its stdin. When it expires, the gateway stops the
    /// agent.
    pub stdin_stall_timeout: Duration,
    /// The number of lines that may wait for an agent's stdin. Beyond it, the gateway rejects the sender.
    pub max_stdin_lines: usize,
    /// Additional lines that only cancels and answers may use. Beyond them, the gateway rejects the sender.
    pub max_reserved_stdin_lines: usize,
    /// The time for which the gateway remembers an `Idempotency-Key`.
    pub idempotency_key_max_age: Duration,
    /// The lifetime of an unused ticket. After it, requests with the ticket fail with 401.
    pub ticket_unused_timeout: Duration,
    /// The lifetime of a ticket after its last stream ended. After it, requests with the ticket fail with
    /// 401.
    pub ticket_idle_timeout: Duration,
    /// The lifetime of an unused link key. After it, requests with the key fail with 401.
    pub link_key_idle_timeout: Duration,
    /// The back-off after a crash grows from `min_backoff` to `max_backoff`. After `max_breaker_crashes` crashes
    /// within `breaker_window`, the breaker opens and requests fail with 503.
    pub min_backoff: Duration,
    pub max_backoff: Duration,
    pub max_breaker_crashes: u32,
    pub breaker_window: Duration,
    /// The number of keys of each kind. Beyond it, the gateway rejects a new named key, and evicts the least
    /// recently used link key.
    pub max_named_keys: usize,
    pub max_link_keys: usize,
    /// The number of tickets of one principal. Beyond it, the gateway evicts the oldest ticket without a
    /// stream. A backend may need one ticket for each of its users.
    pub max_tickets: usize,
    /// The size of a request body in bytes. A larger body fails with 413.
    pub max_body_bytes: usize,
    /// The size in bytes of a body with a prompt or with the answer to an agent's request. A larger body
    /// fails with 413.
    pub max_prompt_bytes: usize,
    /// The size in bytes of an uploaded file, and of a file that an agent reads or writes through the
    /// gateway. A larger upload fails with 413, and an agent receives an error.
    pub max_file_bytes: u64,
    /// The number of concurrent file requests of a session's agent. It includes answers that the agent has not
    /// read. Further requests wait.
    pub max_file_requests: usize,
    /// The content in bytes of the waiting write requests. Beyond it, the agent receives an error.
    pub max_pending_write_bytes: usize,
    /// The size in bytes up to which an attached text becomes part of the prompt. A longer text is attached
    /// as a link.
    pub max_attached_text_bytes: u64,
    /// The number of names that a file search examines for one page. Beyond it, the page ends and a cursor
    /// continues the search.
    pub max_search_names: usize,
    /// The nesting depth of JSON. Deeper JSON from a client fails with 422, and deeper JSON from an agent is
    /// an invalid line.
    pub max_json_depth: usize,
    /// The size in bytes of a batch from an agent to its session, and the number of waiting batches. Beyond
    /// it, the gateway stops reading the agent's stdout.
    pub max_batch_bytes: usize,
    pub max_queued_batches: usize,
    /// The number of commands that may wait for a session. Beyond it, requests fail with 503.
    pub max_queued_commands: usize,
    /// The number of bytes of a session that may wait for their commit. Beyond it, the session accepts no
    /// batches.
    pub max_uncommitted_bytes: usize,
    /// The number of record writes outside sessions that may wait for their commit. Beyond it, the next write
    /// waits.
    pub max_queued_writes: usize,
    /// The size in bytes of a run, and of a transaction. A larger event forms its own run.
    pub max_run_bytes: usize,
    pub max_transaction_bytes: usize,
    /// The number of invalid lines of an agent in a minute. Beyond it, the gateway stops the agent.
    pub max_invalid_lines_per_minute: u32,
    /// The number of bytes that an agent may print to stdout before it answers `initialize`. Beyond it, the
    /// gateway stops the agent. Invalid lines count only after this answer.
    pub max_start_output_bytes: usize,
    /// The number of updates that the gateway keeps for a session id that it does not know yet. Further
    /// updates are discarded.
    pub max_pre_attach_updates: usize,
    /// The number of bytes of an agent's stderr that the gateway keeps. The last bytes are kept.
    pub max_stderr_bytes: usize,
    /// The number of prompts that may wait in a session. Beyond it, prompts fail with 429.
    pub max_session_queued_prompts: usize,
    /// The maximum age of a queued prompt after a restart. An older prompt fails with `prompt_expired`.
    pub queued_prompt_max_age: Duration,
    /// The number of requests of an agent that may wait for an answer in a session. Beyond it, the agent
    /// receives an error.
    pub max_pending_requests: usize,
    /// The time that a client has to serve a file or terminal request. When it expires, the agent receives an
    /// error.
    pub client_answer_timeout: Duration,
    /// The same for an extension request, which only clients can answer.
    pub extension_answer_timeout: Duration,
    /// The number of terminals that the gateway runs for a session and the agent has not released. Beyond it,
    /// the agent receives an error.
    pub max_terminals: usize,
    /// The number of bytes of a terminal's output that the gateway keeps: the default, and the maximum that an
    /// agent may request. Beyond it, the oldest output is discarded.
    pub default_terminal_bytes: usize,
    pub max_terminal_bytes: usize,
    /// The same number for all terminals together.
    pub max_total_terminal_bytes: usize,
    /// The number of bytes of a terminal's output in the log. Beyond it, only the end of the output is
    /// logged, after the command has ended.
    pub max_terminal_log_bytes: u64,
    /// The time that a terminal may run without a turn. When it expires, the gateway kills the command.
    pub terminal_idle_timeout: Duration,
    /// The number of places in an agent's wait queue. Beyond it, requests fail with 503.
    pub max_queue_places: usize,
    /// The time that a request may wait in the queue. When it expires, the request fails with 504.
    pub queue_timeout: Duration,
    /// The time for which a request outside a turn (attach, mode, option, call) waits for a process. When it
    /// expires, the request fails with 503.
    pub settings_queue_timeout: Duration,
    /// The time for which the gateway tries to delete a session without a process at the agent. When it
    /// expires, the agent keeps the session.
    pub upstream_delete_timeout: Duration,
    /// Limits for each principal, unless its keys set other values. Beyond them, requests fail with 429. A
    /// backend with one key is one principal, so the defaults suit a backend with 500 users.
    pub max_prompts_per_minute: u32,
    pub max_requests_per_minute: u32,
    pub max_streams: usize,
    pub max_live_sessions: usize,
    /// The number of prompts, and of other calls, of one principal that may wait for a process of one agent.
    pub max_queued_prompts: usize,
    /// The total number of connections, and the number from one address. Further connections are refused.
    pub max_connections: usize,
    pub max_connections_per_address: usize,
    /// The number of bytes that hyper buffers for a connection, including the head of a request. A larger
    /// head fails with 431.
    pub max_http_buffer_bytes: usize,
    /// The size in bytes of the kernel's send buffer for a slow client. When it is full, the stream waits.
    pub send_buffer_bytes: usize,
    /// The send buffer in bytes of an event stream on its own socket. It is smaller, because the data in
    /// flight to many readers of one log exceeds the processor's cache and then costs more for each byte.
    pub stream_send_buffer_bytes: usize,
    /// The size in bytes of a page of events. A cursor continues a larger result.
    pub max_page_bytes: usize,
    /// HTTP/2: the number of concurrent requests, the number of pending resets, and the size in bytes of a
    /// request head. Beyond them, the gateway rejects the request.
    pub max_h2_streams: u32,
    pub max_h2_pending_resets: usize,
    pub max_h2_header_bytes: u32,
    /// HTTP/2: the number of concurrent requests on a connection without an authenticated request. Further
    /// requests wait.
    pub max_h2_unauthenticated_streams: u32,
    /// HTTP/2: the number of response bytes that clients have not read, for one connection and in total.
    /// Beyond it, new requests on connections with such bytes wait.
    pub max_connection_unsent_bytes: usize,
    pub max_unsent_bytes: usize,
    /// The number of wrong keys from one address in a minute. Beyond it, requests fail with 429.
    pub max_failed_keys_per_minute: u32,
    /// The number of bytes of committed runs in memory, for one session and in total. Beyond it, readers read
    /// from the store.
    pub max_session_tail_bytes: usize,
    pub max_tail_bytes: usize,
    /// The number of concurrent reads of the store, and the size in bytes of the page that one read returns.
    pub max_store_readers: usize,
    pub store_page_bytes: usize,
    /// The number of bytes that a sequential reader prefetches from the store, at most a quarter of
    /// `max_read_cache_bytes`.
    pub read_ahead_bytes: usize,
    /// The size in bytes of the cache for other readers of the same log.
    pub max_read_cache_bytes: usize,
    /// The bytes and events that one session may write in an hour. Beyond it, the gateway stops the agent's
    /// process, the turn fails, and prompts fail with 429 until the hour ends.
    pub max_session_bytes_per_hour: u64,
    pub max_session_events_per_hour: u64,
    /// The number of bytes, on disk and decoded, up to which a log that a crashed gateway left open is
    /// checked before the start. A larger log is checked in the background while the gateway serves.
    pub max_start_check_bytes: u64,
    /// Retention: the stored bytes of a session's log, and its age after the last event. Beyond it, the oldest
    /// events are deleted.
    pub max_session_log_bytes: u64,
    pub max_log_age: Duration,
    /// Retention: the stored bytes of all logs. Beyond it, the oldest events of the largest logs are deleted.
    pub max_total_log_bytes: u64,
    /// The step of the wall clock that counts as a jump. Nothing expires by age until the jump has persisted
    /// for `clock_settle_timeout`.
    pub clock_jump_threshold: Duration,
    pub clock_settle_timeout: Duration,
    /// The time for which `session.deleted` remains on `/v1/events`, at most `max_log_age`.
    pub deleted_max_age: Duration,
    /// The free disk space below which prompts fail with 507, in percent of the disk and in bytes. The larger
    /// value applies.
    pub min_free_disk_percent: u64,
    pub min_free_disk_bytes: u64,
    /// The number of bytes of disk space that the gateway reserves. A full disk releases the reserve, so that
    /// ends of turns, cancels and deletes still commit. Prompts fail with 507 until the gateway has reserved
    /// the space again.
    pub disk_reserve_bytes: u64,
    /// The interval between two keep-alive comments on a stream without other data.
    pub keep_alive_interval: Duration,
    /// The time after which the gateway evicts a session without a process, a turn or a reader from memory.
    pub session_idle_timeout: Duration,
}

impl Default for Limits {
    #[expect(clippy::too_many_lines, reason = "one line for each limit")]
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            header_timeout: seconds(10),
            connection_idle_timeout: seconds(180),
            body_timeout: seconds(30),
            write_stall_timeout: seconds(30),
            session_new_timeout: seconds(60),
            session_load_timeout: seconds(300),
            restore_timeout: seconds(60),
            replay_quiet_interval: Duration::from_millis(300),
            replay_quiet_timeout: seconds(30),
            call_timeout: seconds(60),
            short_lease_timeout: seconds(10),
            sign_in_timeout: seconds(600),
            max_sign_in_output_bytes: 8 << 20,
            max_websocket_message_bytes: 64 << 10,
            cancel_timeout: seconds(15),
            cancel_total_timeout: seconds(30),
            stop_stdin_timeout: seconds(5),
            stop_term_timeout: seconds(5),
            drain_stdin_timeout: seconds(2),
            drain_term_timeout: seconds(1),
            stop_kill_timeout: seconds(3),
            spawn_timeout: seconds(10),
            drain_timeout: seconds(5),
            drain_cancel_timeout: seconds(1),
            stdin_stall_timeout: seconds(10),
            max_stdin_lines: 64,
            max_reserved_stdin_lines: 128,
            idempotency_key_max_age: seconds(24 * 3600),
            ticket_unused_timeout: seconds(60),
            ticket_idle_timeout: seconds(600),
            link_key_idle_timeout: seconds(30 * 24 * 3600),
            min_backoff: seconds(1),
            max_backoff: seconds(60),
            max_breaker_crashes: 5,
            breaker_window: seconds(120),
            max_named_keys: 1000,
            max_link_keys: 100,
            max_tickets: 4096,
            max_body_bytes: 1 << 20,
            max_prompt_bytes: 10 << 20,
            max_file_bytes: 16 << 20,
            max_file_requests: 4,
            max_pending_write_bytes: 64 << 20,
            max_attached_text_bytes: 64 << 10,
            max_search_names: 20_000,
            max_json_depth: 128,
            max_batch_bytes: 1 << 20,
            max_queued_batches: 8,
            max_queued_commands: 64,
            max_uncommitted_bytes: 1 << 20,
            max_queued_writes: 256,
            max_run_bytes: 32 << 10,
            max_transaction_bytes: 4 << 20,
            max_invalid_lines_per_minute: 1000,
            max_start_output_bytes: 16 << 20,
            max_pre_attach_updates: 100,
            max_stderr_bytes: 64 << 10,
            max_session_queued_prompts: 8,
            queued_prompt_max_age: seconds(3600),
            max_pending_requests: 64,
            client_answer_timeout: seconds(300),
            extension_answer_timeout: seconds(30),
            max_terminals: 16,
            default_terminal_bytes: 1 << 20,
            max_terminal_bytes: 4 << 20,
            max_total_terminal_bytes: 64 << 20,
            max_terminal_log_bytes: 16 << 20,
            terminal_idle_timeout: seconds(3600),
            max_queue_places: 4096,
            queue_timeout: seconds(3600),
            settings_queue_timeout: seconds(20),
            upstream_delete_timeout: seconds(120),
            max_prompts_per_minute: 6000,
            max_requests_per_minute: 60_000,
            max_streams: 2000,
            max_live_sessions: 2000,
            max_queued_prompts: 2000,
            max_connections: 4096,
            max_connections_per_address: 2048,
            max_http_buffer_bytes: 64 << 10,
            send_buffer_bytes: 256 << 10,
            stream_send_buffer_bytes: 128 << 10,
            max_page_bytes: 4 << 20,
            max_h2_streams: 128,
            max_h2_pending_resets: 20,
            max_h2_header_bytes: 16 << 10,
            max_h2_unauthenticated_streams: 16,
            max_connection_unsent_bytes: 8 << 20,
            max_unsent_bytes: 256 << 20,
            max_failed_keys_per_minute: 10,
            max_session_tail_bytes: 2 << 20,
            max_tail_bytes: 64 << 20,
            max_store_readers: 4,
            store_page_bytes: 32 << 10,
            read_ahead_bytes: 256 << 10,
            max_read_cache_bytes: 8 << 20,
            max_session_bytes_per_hour: 512 << 20,
            max_session_events_per_hour: 2_000_000,
            max_start_check_bytes: 256 << 20,
            max_session_log_bytes: 512 << 20,
            max_log_age: seconds(30 * 24 * 3600),
            max_total_log_bytes: 10 << 30,
            clock_jump_threshold: seconds(3600),
            clock_settle_timeout: seconds(24 * 3600),
            deleted_max_age: seconds(7 * 24 * 3600),
            min_free_disk_percent: 5,
            min_free_disk_bytes: 1 << 30,
            disk_reserve_bytes: 64 << 20,
            keep_alive_interval: seconds(15),
            session_idle_timeout: seconds(60),
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
