//! The keys of `types/limits.rs`: the limits that an operator sets, and the internal limits.
//!
//! Internal limits have no key in a release build. The section `[testing]` of debug builds sets them in tests.

use super::key::{Key, KeyDefault};
use super::kinds::{count, count_or_none, percent, size, size_or_none, time, time_or_none};
#[cfg(debug_assertions)]
use super::section::Section;
#[cfg(debug_assertions)]
use crate::types::Limits;

/// Declares both groups. The pattern names each field, so the compiler reports a field that is missing here.
macro_rules! limits {
    (
        operator { $([$section:literal] { $($name:ident = $field:ident: $kind:ident, $comment:literal;)+ })+ }
        internal { $($internal_kind:ident: $($internal:ident),+;)+ }
    ) => {
        pub(super) const KEYS: &[Key] = &[$($(Key {
            section: $section,
            name: stringify!($name),
            comment: $comment,
            default: KeyDefault::Fixed,
            local: true,
            read: |config, field| $kind::read(&field).map(|value| config.limits.$field = value),
            show: |config| Some($kind::show(config.limits.$field)),
        }),+),+];

        #[cfg(debug_assertions)]
        pub(super) fn read_testing(mut section: Section, limits: &mut Limits) -> Result<(), super::error::ConfigError> {
            let Limits { $($($internal),+,)+ $($($field: _),+),+ } = limits;
            $($(if let Some(field) = section.take(stringify!($internal)) {
                *$internal = $internal_kind::read(&field)?;
            })+)+
            section.finish()
        }
    };
}

limits! {
    operator {
        ["server"] {
            max_connections = max_connections: count, "Open connections. Further connections are refused.";
            max_connections_per_address = max_connections_per_address: count, "Open connections from one address. A TLS proxy is exempt.";
            max_body_bytes = max_body_bytes: size, "The size of a request body. A larger body fails with 413.";
            max_prompt_bytes = max_prompt_bytes: size, "The size of a body with a prompt or an answer. A larger body fails with 413.";
            max_file_bytes = max_file_bytes: size, "The size of an uploaded file, and of a file that an agent reads or writes through the gateway.";
        }
        ["auth"] {
            link_key_idle_timeout = link_key_idle_timeout: time, "The lifetime of an unused link key. After it, requests fail with 401.";
            max_failed_keys_per_minute = max_failed_keys_per_minute: count, "Wrong keys from one address in a minute. Further requests from the address fail with 429.";
        }
        ["limits.per_key"] {
            max_requests_per_minute = max_requests_per_minute: count, "The number of requests in a minute. Further requests fail with 429.";
            max_prompts_per_minute = max_prompts_per_minute: count, "The number of prompts in a minute. Further prompts fail with 429.";
            max_streams = max_streams: count, "The number of open event streams and held responses. Further requests fail with 429.";
            max_live_sessions = max_live_sessions: count, "The number of sessions that have a process or wait for one. Further requests fail with 429.";
            max_queued_prompts = max_queued_prompts: count, "The number of prompts and calls that wait for a process of one agent. Further ones fail with 429.";
        }
        ["limits.per_session"] {
            max_queued_prompts = max_session_queued_prompts: count_or_none, "The number of prompts that wait in the session. Further prompts fail with 429.";
            max_terminals = max_terminals: count_or_none, "The number of terminals that the gateway runs. For further terminals, the agent receives an error.";
            max_bytes_per_hour = max_session_bytes_per_hour: size, "Bytes that the session may log in an hour. After that, the turn fails and prompts fail with 429.";
            max_events_per_hour = max_session_events_per_hour: count, "Events that the session may log in an hour. After that, the turn fails and prompts fail with 429.";
        }
        ["timeouts"] {
            session_new_timeout = session_new_timeout: time, "The time limit for creating or resuming a session at the agent. After it, the request fails with 504.";
            session_load_timeout = session_load_timeout: time, "The time limit for loading a session with its history at the agent. After it, the request fails with 504.";
            queue_timeout = queue_timeout: time, "The time limit for waiting for a process of an agent. After it, the request fails with 504.";
            drain_timeout = drain_timeout: time_or_none, "Running turns during a shutdown. Then the gateway cancels them.";
            queued_prompt_max_age = queued_prompt_max_age: time, "The age of a queued prompt after a restart. An older prompt fails with `prompt_expired`.";
            keep_alive_interval = keep_alive_interval: time, "The interval between keep-alive comments on a quiet stream.";
        }
        ["retention"] {
            max_session_bytes = max_session_log_bytes: size, "The maximum stored size of a session's log. The gateway deletes the oldest events above it.";
            max_total_bytes = max_total_log_bytes: size, "The maximum stored size of all logs. The gateway deletes the oldest events of the largest logs above it.";
            max_age = max_log_age: time, "The age of a session's log after its last event. Older logs are deleted.";
            min_free_disk_bytes = min_free_disk_bytes: size_or_none, "Free disk space. Below it, prompts, new sessions and /readyz fail with 507.";
            min_free_disk_percent = min_free_disk_percent: percent, "The same in percent of the disk. The larger value applies.";
            disk_reserve_bytes = disk_reserve_bytes: size_or_none, "Disk space that the gateway reserves, to commit the ends of turns on a full disk.";
        }
        ["cache"] {
            max_tail_bytes = max_tail_bytes: size, "The maximum size of recent events in memory, for all sessions. Readers of other events read from the disk.";
            max_read_cache_bytes = max_read_cache_bytes: size, "The cache for readers of older events.";
        }
    }
    internal {
        time: header_timeout, connection_idle_timeout, body_timeout, write_stall_timeout, restore_timeout, replay_quiet_interval,
            replay_quiet_timeout, call_timeout, short_lease_timeout, sign_in_timeout, cancel_timeout, cancel_total_timeout, stdin_stall_timeout,
            idempotency_key_max_age, ticket_unused_timeout, ticket_idle_timeout, min_backoff, max_backoff, breaker_window, spawn_timeout,
            settings_queue_timeout, upstream_delete_timeout, clock_jump_threshold, deleted_max_age, session_idle_timeout,
            client_answer_timeout, extension_answer_timeout, terminal_idle_timeout;
        time_or_none: clock_settle_timeout, stop_stdin_timeout, stop_term_timeout, stop_kill_timeout, drain_stdin_timeout, drain_term_timeout,
            drain_cancel_timeout;
        size: max_sign_in_output_bytes, max_websocket_message_bytes, max_pending_write_bytes, max_attached_text_bytes, max_batch_bytes,
            max_uncommitted_bytes, max_run_bytes, max_transaction_bytes, max_stderr_bytes, max_start_output_bytes, max_session_tail_bytes,
            store_page_bytes, read_ahead_bytes, max_start_check_bytes, max_http_buffer_bytes, send_buffer_bytes, stream_send_buffer_bytes,
            max_h2_header_bytes, max_connection_unsent_bytes, max_unsent_bytes, max_page_bytes, default_terminal_bytes, max_terminal_bytes,
            max_total_terminal_bytes, max_terminal_log_bytes;
        count: max_breaker_crashes, max_named_keys, max_link_keys, max_tickets, max_file_requests, max_search_names, max_json_depth,
            max_queued_batches, max_queued_commands, max_invalid_lines_per_minute, max_stdin_lines, max_reserved_stdin_lines,
            max_queued_writes, max_pre_attach_updates, max_pending_requests, max_queue_places, max_store_readers, max_h2_streams, max_h2_unauthenticated_streams,
            max_h2_pending_resets;
    }
}
