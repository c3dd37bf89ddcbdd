//! The limits of sessions, their tasks and webhooks.

use std::time::Duration;

/// The time for which the gateway remembers an `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_MAX_AGE: Duration = Duration::from_hours(24);

/// Calls a macro with the table of limits: see `base::declare_limits`.
#[macro_export]
macro_rules! sessions_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            sessions: Limits {
                ["server"] {
                    /// The size of a body with a prompt or an answer. A larger body fails with 413.
                    max_prompt_bytes: usize = 10 << 20, size;
                    /// The size of an uploaded file, and of a file that an agent reads or writes through the gateway.
                    max_file_bytes: u64 = 16 << 20, size;
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
                    session_new_timeout: Duration = Duration::from_mins(1), time;
                    /// The time limit for loading a session with its history at the agent. After it, the request fails
                    /// with 504.
                    session_load_timeout: Duration = Duration::from_mins(5), time;
                    /// The time limit for waiting for a process of an agent. After it, the request fails with 504.
                    queue_timeout: Duration = Duration::from_hours(1), time;
                    /// Running turns during a shutdown. Then the gateway cancels them.
                    drain_timeout: Duration = Duration::from_secs(5), time_or_zero;
                    /// The age of a queued prompt after a restart. An older prompt fails with `prompt_expired`.
                    queued_prompt_max_age: Duration = Duration::from_hours(1), time;
                    /// The time of a turn without an update or a request while a tool call is in progress. Then the gateway
                    /// cancels the turn. A longer `turn_idle_timeout` of the agent applies instead.
                    tool_call_idle_timeout: Duration = Duration::from_hours(4), time;
                }
                ["testing"] {
                    /// The time for which the gateway retries to restore a session at the agent. When it expires, the turn
                    /// fails with a retryable error.
                    restore_timeout: Duration = Duration::from_mins(1), time;
                    /// A replay is complete if no history arrives for this time after the answer to `session/load`. Then
                    /// the gateway sends the prompt.
                    replay_quiet_interval: Duration = Duration::from_millis(300), time;
                    /// The longest time for which a prompt waits for the end of a replay. When it expires, the gateway
                    /// sends the prompt.
                    replay_quiet_timeout: Duration = Duration::from_secs(30), time;
                    /// The number and the bytes of updates that the gateway keeps for a session id that it does not know
                    /// yet. Further updates are discarded.
                    max_pre_attach_updates: usize = 100, count;
                    max_pre_attach_bytes: usize = 1 << 20, size;
                    /// The time that a cancelled turn may continue. When it expires, the gateway stops the agent's process.
                    cancel_timeout: Duration = Duration::from_secs(15), time;
                    /// The total time that a cancelled turn may last. When it expires, the turn fails with
                    /// `cancel_timeout`.
                    cancel_total_timeout: Duration = Duration::from_secs(30), time;
                    /// Drain: the time that cancelled turns have to end. When it expires, the gateway stops the agent's
                    /// process.
                    drain_cancel_timeout: Duration = Duration::from_secs(1), time_or_zero;
                    /// The time that an agent has to close or delete a session before the gateway stops its process.
                    session_close_timeout: Duration = Duration::from_secs(5), time;
                    /// The time for which a request outside a turn (attach, mode, option, call) waits for a process. When
                    /// it expires, the request fails with 503.
                    settings_queue_timeout: Duration = Duration::from_secs(20), time;
                    /// The time after which the gateway evicts a session without a process, a turn or a reader from memory.
                    session_idle_timeout: Duration = Duration::from_mins(1), time;
                    /// The number of requests of an agent that may wait for an answer in a session. Beyond it, the agent
                    /// receives an error.
                    max_pending_requests: usize = 64, count;
                    /// The time that a client has to serve a file or terminal request. When it expires, the agent receives
                    /// an error.
                    client_answer_timeout: Duration = Duration::from_mins(5), time;
                    /// The same for an extension request, which only clients can answer.
                    extension_answer_timeout: Duration = Duration::from_secs(30), time;
                    /// The number of concurrent file requests of a session's agent. It includes answers that the agent has
                    /// not read. Further requests wait.
                    max_file_requests: usize = 4, count;
                    /// The content in bytes of the waiting write requests. Beyond it, the agent receives an error.
                    max_pending_write_bytes: usize = 64 << 20, size;
                    /// The size in bytes up to which an attached text becomes part of the prompt. A longer text is attached
                    /// as a link.
                    max_attached_text_bytes: u64 = 64 << 10, size;
                    /// The number of bytes of a terminal's output in the log. Beyond it, only the end of the output is
                    /// logged, after the command has ended.
                    max_terminal_log_bytes: u64 = 16 << 20, size;
                    /// The time that a terminal may run without a turn. When it expires, the gateway kills the command.
                    terminal_idle_timeout: Duration = Duration::from_hours(1), time;
                    /// The size in bytes of a page of events. A cursor continues a larger result.
                    max_page_bytes: usize = 4 << 20, size;
                    /// The unit of the delays between the attempts of a delivery of a webhook.
                    webhook_retry_unit: Duration = Duration::from_secs(5), time;
                    /// The unit of the times by which tasks of a higher priority precede others.
                    task_aging_unit: Duration = Duration::from_mins(1), time;
                    /// Whether webhooks may go to loopback addresses.
                    webhooks_to_loopback: bool = false, switch;
                }
            }
        }
    };
}
sessions_limits!(base::declare_limits);
