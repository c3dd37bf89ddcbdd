//! Every limit and timeout, its default, and the effect of reaching it.
//!
//! The configuration sets the limits that have a key. All other limits are constant in release builds, and the
//! section `[testing]` of debug builds sets them in tests.

use std::time::Duration;

/// Calls a macro with the table of limits.
///
/// The first group has the limits with a key, by the section of the configuration file. A row has the
/// documentation of the key, the name of the field, the name of the key if it differs, the type, the default
/// and the kind of the value (a function in `src/config/key.rs`).
#[macro_export]
macro_rules! all_limits {
    ($consumer:ident) => {
        $consumer! {
            operator {
                ["server"] {
                    /// Open connections. A further connection evicts the oldest one without an accepted key, or is refused.
                    max_connections: usize = 4096, count;
                    /// Open connections from one address or IPv6 /64 network, with the same effect. A TLS proxy is exempt.
                    max_connections_per_address: usize = 2048, count;
                    /// The size of a request body. A larger body fails with 413.
                    max_body_bytes: usize = 1 << 20, size;
                    /// The size of a body with a prompt or an answer. A larger body fails with 413.
                    max_prompt_bytes: usize = 10 << 20, size;
                    /// The memory of request bodies and WebSocket messages, of which one key gets at most a quarter. Beyond
                    /// it, requests fail with 503 (all keys) or 429 (one key).
                    max_body_memory_bytes: usize = 128 << 20, size;
                    /// The size of an uploaded file, and of a file that an agent reads or writes through the gateway.
                    max_file_bytes: u64 = 16 << 20, size;
                }
                ["auth"] {
                    /// The lifetime of an unused link key. After it, requests fail with 401.
                    link_key_idle_timeout: Duration = seconds(30 * 24 * 3600), time;
                    /// Wrong keys from one address in a minute. Further requests from the address fail with 429.
                    max_failed_keys_per_minute: u32 = 10, count;
                }
                // A backend with one key is one principal, so the defaults suit a backend with 500 users.
                ["limits.per_key"] {
                    /// The number of requests in a minute. Further requests fail with 429.
                    max_requests_per_minute: u32 = 60_000, count;
                    /// The number of prompts in a minute. Further prompts fail with 429.
                    max_prompts_per_minute: u32 = 6000, count;
                    /// The number of open event streams and held responses. Further requests fail with 429.
                    max_streams: usize = 2000, count;
                    /// The number of sessions that have a process or wait for one. Further requests fail with 429.
                    max_live_sessions: usize = 2000, count;
                    /// The number of prompts and calls that wait for a process of one agent. Further ones fail with
                    /// 429.
                    max_queued_prompts: usize = 2000, count;
                    /// The size of the tasks that wait for a process. Further tasks fail with 429.
                    max_queued_task_bytes: usize = 64 << 20, size;
                    /// The number of members of the fleet. A further member replaces one that is disconnected, or is
                    /// rejected.
                    max_fleet_members: usize = 16, count;
                }
                ["limits.per_session"] {
                    /// The number of prompts that wait in the session. Further prompts fail with 429.
                    max_session_queued_prompts as max_queued_prompts: usize = 8, count_or_zero;
                    /// The number of terminals that the gateway runs. For further terminals, the agent receives an
                    /// error.
                    max_terminals: usize = 16, count_or_zero;
                    /// Bytes that the session may log in an hour. After that, the turn fails and prompts fail with 429.
                    max_session_bytes_per_hour as max_bytes_per_hour: u64 = 512 << 20, size;
                    /// Events that the session may log in an hour. After that, the turn fails and prompts fail with
                    /// 429.
                    max_session_events_per_hour as max_events_per_hour: u64 = 2_000_000, count;
                }
                ["timeouts"] {
                    /// The time limit for creating or resuming a session at the agent. After it, the request fails with
                    /// 504.
                    session_new_timeout: Duration = seconds(60), time;
                    /// The time limit for loading a session with its history at the agent. After it, the request fails
                    /// with 504.
                    session_load_timeout: Duration = seconds(300), time;
                    /// The time limit for waiting for a process of an agent. After it, the request fails with 504.
                    queue_timeout: Duration = seconds(3600), time;
                    /// Running turns during a shutdown. Then the gateway cancels them.
                    drain_timeout: Duration = seconds(5), time_or_zero;
                    /// The age of a queued prompt after a restart. An older prompt fails with `prompt_expired`.
                    queued_prompt_max_age: Duration = seconds(3600), time;
                    /// The time of a turn without an update or a request while a tool call is in progress. Then the gateway
                    /// cancels the turn. A longer `turn_idle_timeout` of the agent applies instead.
                    tool_call_idle_timeout: Duration = seconds(4 * 3600), time;
                    /// The interval between keep-alive comments on a quiet stream.
                    keep_alive_interval: Duration = seconds(15), time;
                }
                ["retention"] {
                    /// The maximum stored size of a session's log. The gateway deletes the oldest events above it.
                    max_session_log_bytes as max_session_bytes: u64 = 512 << 20, size;
                    /// The maximum stored size of all logs. The gateway deletes the oldest events of the largest logs
                    /// above it.
                    max_total_log_bytes as max_total_bytes: u64 = 10 << 30, size;
                    /// The age of a session's log after its last event. Older logs are deleted.
                    max_log_age as max_age: Duration = seconds(30 * 24 * 3600), time;
                    /// The age of an event of the audit log. The gateway deletes older events, except the last ones.
                    audit_max_age: Duration = seconds(365 * 24 * 3600), time;
                    /// Free disk space. Below it, prompts, new sessions and /readyz fail with 507.
                    min_free_disk_bytes: u64 = 1 << 30, size_or_zero;
                    /// The same in percent of the disk. The larger value applies.
                    min_free_disk_percent: u64 = 5, percent;
                    /// Disk space that the gateway reserves, to commit the ends of turns on a full disk.
                    disk_reserve_bytes: u64 = 64 << 20, size_or_zero;
                }
                ["cache"] {
                    /// The maximum size of recent events in memory, for all sessions. Readers of other events read from
                    /// the disk.
                    max_tail_bytes: usize = 64 << 20, size;
                    /// The cache for readers of older events.
                    max_read_cache_bytes: usize = 8 << 20, size;
                }
            }
            internal {
                /// The number of open connections without an accepted key, at most half of `max_connections`, and the
                /// number from one address, at most a quarter of that. Beyond them, a new connection evicts the oldest
                /// such connection. A TLS proxy has no limit of its own.
                max_unauthenticated_connections: usize = 2048, count;
                max_unauthenticated_connections_per_address: usize = 512, count;
                /// The number of bytes that requests on such connections may use, in total: the received bytes, and 32 KiB
                /// for each open request. Beyond it, the gateway evicts the oldest such connection with a request.
                max_unauthenticated_request_bytes: usize = 24 << 20, size;
                /// The time to read the head of a request, and to wait for the first request. When it expires, the
                /// connection closes.
                header_timeout: Duration = seconds(10), time;
                /// The time that a connection may be idle after a request. When it expires, the connection closes. The
                /// default is longer than the idle timeout of most clients and proxies. Thus the client closes the
                /// connection first, and no request arrives on a connection that is closing. While more than half of
                /// the connection slots are in use, `header_timeout` applies instead.
                connection_idle_timeout: Duration = seconds(180), time;
                /// The time to read the body of a request. When it expires, the connection closes.
                body_timeout: Duration = seconds(30), time;
                /// The time for which a client may read nothing of a response. When it expires, the connection closes.
                write_stall_timeout: Duration = seconds(30), time;
                /// The time for which the gateway retries to restore a session at the agent. When it expires, the turn
                /// fails with a retryable error.
                restore_timeout: Duration = seconds(60), time;
                /// A replay is complete if no history arrives for this time after the answer to `session/load`. Then
                /// the gateway sends the prompt.
                replay_quiet_interval: Duration = Duration::from_millis(300), time;
                /// The longest time for which a prompt waits for the end of a replay. When it expires, the gateway
                /// sends the prompt.
                replay_quiet_timeout: Duration = seconds(30), time;
                /// Timeout of a call to an agent outside a session (list of sessions, sign-in state, `/rpc`). When it
                /// expires, the call fails with 504.
                call_timeout: Duration = seconds(60), time;
                /// The time for which such a call waits while all processes are busy. When it expires, the call fails
                /// with 503.
                short_lease_timeout: Duration = seconds(10), time;
                /// Timeout of a sign-in. When it expires, a call fails with 504, and a terminal closes.
                sign_in_timeout: Duration = seconds(600), time;
                /// The number of bytes that a terminal of a sign-in may print. Beyond it, the terminal closes.
                max_sign_in_output_bytes: usize = 8 << 20, size;
                /// The size of a client's WebSocket message in bytes. A larger message closes the connection.
                max_websocket_message_bytes: usize = 64 << 10, size;
                /// The time that a cancelled turn may continue. When it expires, the gateway stops the agent's process.
                cancel_timeout: Duration = seconds(15), time;
                /// The total time that a cancelled turn may last. When it expires, the turn fails with
                /// `cancel_timeout`.
                cancel_total_timeout: Duration = seconds(30), time;
                /// Graceful stop: the time between closing stdin and TERM.
                stop_stdin_timeout: Duration = seconds(5), time_or_zero;
                /// Graceful stop: the time between TERM and KILL.
                stop_term_timeout: Duration = seconds(5), time_or_zero;
                /// The same two steps during a drain.
                drain_stdin_timeout: Duration = seconds(2), time_or_zero;
                drain_term_timeout: Duration = seconds(1), time_or_zero;
                /// Graceful stop: the time after KILL, before the gateway kills the supervisor itself.
                stop_kill_timeout: Duration = seconds(3), time_or_zero;
                /// The time from the start of a supervisor until it reports that the program runs. When it expires, the
                /// start fails.
                spawn_timeout: Duration = seconds(10), time;
                /// Drain: the time that cancelled turns have to end. When it expires, the gateway stops the agent's
                /// process.
                drain_cancel_timeout: Duration = seconds(1), time_or_zero;
                /// The time for which an agent may read nothing from its stdin. When it expires, the gateway stops the
                /// agent.
                stdin_stall_timeout: Duration = seconds(10), time;
                /// The number of lines that may wait for an agent's stdin. Beyond it, the gateway rejects the sender.
                max_stdin_lines: usize = 64, count;
                /// Additional lines that only cancels and answers may use. Beyond them, the gateway rejects the sender.
                max_reserved_stdin_lines: usize = 128, count;
                /// The time for which the gateway remembers an `Idempotency-Key`.
                idempotency_key_max_age: Duration = seconds(24 * 3600), time;
                /// The lifetime of an unused ticket. After it, requests with the ticket fail with 401.
                ticket_unused_timeout: Duration = seconds(60), time;
                /// The lifetime of a ticket after its last stream ended. After it, requests with the ticket fail with
                /// 401.
                ticket_idle_timeout: Duration = seconds(600), time;
                /// The back-off after a crash grows from `min_backoff` to `max_backoff`. After `max_breaker_crashes`
                /// crashes within `breaker_window`, the breaker opens and requests fail with 503.
                min_backoff: Duration = seconds(1), time;
                max_backoff: Duration = seconds(60), time;
                max_breaker_crashes: u32 = 5, count;
                breaker_window: Duration = seconds(120), time;
                /// The number of keys of each kind. Beyond it, the gateway rejects a new named key, and evicts the
                /// oldest unused link key, or rejects a new one if all are in use.
                max_named_keys: usize = 1000, count;
                max_link_keys: usize = 100, count;
                /// The number of tickets of one principal. Beyond it, the gateway evicts the oldest ticket without a
                /// stream. A backend may need one ticket for each of its users.
                max_tickets: usize = 4096, count;
                /// The number of concurrent file requests of a session's agent. It includes answers that the agent has
                /// not read. Further requests wait.
                max_file_requests: usize = 4, count;
                /// The content in bytes of the waiting write requests. Beyond it, the agent receives an error.
                max_pending_write_bytes: usize = 64 << 20, size;
                /// The size in bytes up to which an attached text becomes part of the prompt. A longer text is attached
                /// as a link.
                max_attached_text_bytes: u64 = 64 << 10, size;
                /// The number of names that a file search examines for one page. Beyond it, the page ends and a cursor
                /// continues the search.
                max_search_names: usize = 20_000, count;
                /// The nesting depth of JSON. Deeper JSON from a client fails with 422, and deeper JSON from an agent
                /// is an invalid line.
                max_json_depth: usize = 128, count;
                /// The size in bytes of a batch from an agent to its session, and the number of waiting batches. Beyond
                /// it, the gateway stops reading the agent's stdout.
                max_batch_bytes: usize = 1 << 20, size;
                max_queued_batches: usize = 8, count;
                /// The number of commands that may wait for a session. Beyond it, requests fail with 503.
                max_queued_commands: usize = 64, count;
                /// The number of bytes of a session that may wait for their commit. Beyond it, the session accepts no
                /// batches.
                max_uncommitted_bytes: usize = 1 << 20, size;
                /// The number of record writes outside sessions that may wait for their commit. Beyond it, the next
                /// write waits.
                max_queued_writes: usize = 256, count;
                /// The size in bytes of a run, and of a transaction. A larger event forms its own run.
                max_run_bytes: usize = 32 << 10, size;
                max_transaction_bytes: usize = 4 << 20, size;
                /// The number of invalid lines of an agent in a minute. Beyond it, the gateway stops the agent.
                max_invalid_lines_per_minute: u32 = 1000, count;
                /// The number of bytes that an agent may print to stdout before it answers `initialize`. Beyond it, the
                /// gateway stops the agent. Invalid lines count only after this answer.
                max_start_output_bytes: usize = 16 << 20, size;
                /// The number of updates that the gateway keeps for a session id that it does not know yet. Further
                /// updates are discarded.
                max_pre_attach_updates: usize = 100, count;
                /// The number of bytes of an agent's stderr that the gateway keeps. The last bytes are kept.
                max_stderr_bytes: usize = 64 << 10, size;
                /// The number of requests of an agent that may wait for an answer in a session. Beyond it, the agent
                /// receives an error.
                max_pending_requests: usize = 64, count;
                /// The time that a client has to serve a file or terminal request. When it expires, the agent receives
                /// an error.
                client_answer_timeout: Duration = seconds(300), time;
                /// The same for an extension request, which only clients can answer.
                extension_answer_timeout: Duration = seconds(30), time;
                /// The number of bytes of a terminal's output that the gateway keeps: the default, and the maximum that
                /// an agent may request. Beyond it, the oldest output is discarded.
                default_terminal_bytes: usize = 1 << 20, size;
                max_terminal_bytes: usize = 4 << 20, size;
                /// The same number for all terminals together.
                max_total_terminal_bytes: usize = 64 << 20, size;
                /// The number of bytes of a terminal's output in the log. Beyond it, only the end of the output is
                /// logged, after the command has ended.
                max_terminal_log_bytes: u64 = 16 << 20, size;
                /// The time that a terminal may run without a turn. When it expires, the gateway kills the command.
                terminal_idle_timeout: Duration = seconds(3600), time;
                /// The time for which the processes of a member of the fleet wait for its return. When it expires, their
                /// turns fail.
                member_return_timeout: Duration = seconds(60), time;
                /// The number of places in an agent's wait queue. Beyond it, requests fail with 503.
                max_queue_places: usize = 4096, count;
                /// The time for which a request outside a turn (attach, mode, option, call) waits for a process. When
                /// it expires, the request fails with 503.
                settings_queue_timeout: Duration = seconds(20), time;
                /// The time for which the gateway tries to delete a session without a process at the agent. When it
                /// expires, the agent keeps the session.
                upstream_delete_timeout: Duration = seconds(120), time;
                /// The number of bytes that hyper buffers for a connection, including the head of a request. A larger
                /// head fails with 431.
                max_http_buffer_bytes: usize = 64 << 10, size;
                /// The size in bytes of the kernel's send buffer for a slow client. When it is full, the stream waits.
                send_buffer_bytes: usize = 256 << 10, size;
                /// The send buffer in bytes of an event stream on its own socket. It is smaller, because the data in
                /// flight to many readers of one log exceeds the processor's cache and then costs more for each byte.
                stream_send_buffer_bytes: usize = 128 << 10, size;
                /// The size in bytes of a page of events. A cursor continues a larger result.
                max_page_bytes: usize = 4 << 20, size;
                /// HTTP/2: the number of concurrent requests, the number of pending resets, and the size in bytes of a
                /// request head. Beyond them, the gateway rejects the request.
                max_h2_streams: u32 = 128, count;
                max_h2_pending_resets: usize = 20, count;
                max_h2_header_bytes: u32 = 16 << 10, size;
                /// HTTP/2: the number of concurrent requests on a connection without an authenticated request. Further
                /// requests wait.
                max_h2_unauthenticated_streams: u32 = 16, count;
                /// HTTP/2: the number of response bytes that clients have not read, for one connection and in total.
                /// Beyond it, new requests on connections with such bytes wait.
                max_connection_unsent_bytes: usize = 8 << 20, size;
                max_unsent_bytes: usize = 256 << 20, size;
                /// The number of bytes of one session's committed runs in memory. Beyond it, readers read from the
                /// store.
                max_session_tail_bytes: usize = 2 << 20, size;
                /// The number of concurrent reads of the store, and the size in bytes of the page that one read
                /// returns.
                max_store_readers: usize = 4, count;
                store_page_bytes: usize = 32 << 10, size;
                /// The number of bytes that a sequential reader prefetches from the store, at most a quarter of
                /// `max_read_cache_bytes`.
                read_ahead_bytes: usize = 256 << 10, size;
                /// The number of bytes, on disk and decoded, up to which a log that a crashed gateway left open is
                /// checked before the start. A larger log is checked in the background while the gateway serves.
                max_start_check_bytes: u64 = 256 << 20, size;
                /// The step of the wall clock that counts as a jump. Nothing expires by age until the jump has
                /// persisted for `clock_settle_timeout`.
                clock_jump_threshold: Duration = seconds(3600), time;
                clock_settle_timeout: Duration = seconds(24 * 3600), time_or_zero;
                /// The time for which `session.deleted` remains on `/v1/events`, at most `max_log_age`.
                deleted_max_age: Duration = seconds(7 * 24 * 3600), time;
                /// The maximum stored size of the audit log. The gateway deletes its oldest events above it.
                audit_max_bytes: u64 = 1 << 30, size;
                /// The time for which equal events of the audit log, such as rejected requests of one address, are
                /// counted. The first one is an event at once, and the others are one event at the end.
                audit_window: Duration = seconds(60), time;
                /// The time after which the gateway evicts a session without a process, a turn or a reader from memory.
                session_idle_timeout: Duration = seconds(60), time;
                /// The unit of the delays between the attempts of a delivery of a webhook.
                webhook_retry_unit: Duration = seconds(5), time;
                /// The unit of the times by which tasks of a higher priority precede others.
                task_aging_unit: Duration = seconds(60), time;
                /// Whether webhooks may go to loopback addresses.
                webhooks_to_loopback: bool = false, switch;
            }
        }
    };
}

macro_rules! declare_limits {
    (
        operator { $([$section:literal] { $(
            $(#[doc = $doc:literal])+ $field:ident $(as $key:ident)?: $type:ty = $default:expr, $kind:ident;
        )+ })+ }
        internal { $(
            $(#[doc = $internal_doc:literal])* $internal:ident: $internal_type:ty = $internal_default:expr, $internal_kind:ident;
        )+ }
    ) => {
        /// Limits of the whole gateway. The limits of one agent are in its entry (`AgentSettings`).
        #[derive(Debug, Clone)]
        pub struct Limits {
            $($($(#[doc = $doc])+ pub $field: $type,)+)+
            $($(#[doc = $internal_doc])* pub $internal: $internal_type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($($field: $default,)+)+ $($internal: $internal_default,)+ }
            }
        }
    };
}
all_limits!(declare_limits);

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
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
/// The size in bytes of a title. A longer title is truncated.
pub const TITLE_BYTES: usize = 2048;
/// The size in bytes of the agent's messages in one folded turn, and of all its other items. Further items
/// are omitted, a longer text is truncated, and the turn is marked as `truncated`.
pub const FOLDED_TURN_BYTES: usize = 8 << 20;
/// The number of attempts to restore a session, unless another client uses the session. After the last
/// attempt, the turn fails.
pub const RESTORE_ATTEMPTS: u32 = 4;
/// The number of consecutive attaches that may fail because the agent refuses to restore the session for an unknown reason. The
/// last one begins a new agent session.
pub const RESTORE_FAILURES: u32 = 3;
/// The back-off between two attempts to restore a session. It doubles from the minimum to the maximum.
pub const RESTORE_BACKOFF_MIN: Duration = Duration::from_millis(250);
pub const RESTORE_BACKOFF_MAX: Duration = Duration::from_secs(4);
/// The longest delay before the first load of a session at an agent that must not load a new session
/// immediately.
pub const LOAD_DEFERRAL_MAX: Duration = Duration::from_mins(1);
