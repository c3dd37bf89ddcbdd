//! `[limits]`: every limit of `types/limits.rs`, with its field name as the key.

use super::error::ConfigError;
use super::section::{Field, Section};
use super::units::{duration_text, size_text};
use crate::types::Limits;

/// Reads and lists all limits. The pattern names each field, so the compiler reports a field that is missing
/// here.
macro_rules! limits {
    ($($kind:ident: $($name:ident),+;)+) => {
        pub(super) fn read(mut section: Section) -> Result<Limits, ConfigError> {
            let mut limits = Limits::default();
            let Limits { $($($name),+),+ } = &mut limits;
            $($(if let Some(field) = section.take(stringify!($name)) {
                *$name = $kind::read(&field)?;
            })+)+
            section.finish()?;
            Ok(limits)
        }

        /// Returns the names and the values in the syntax of the file.
        pub(super) fn shown(limits: &Limits) -> Vec<(&'static str, String)> {
            let Limits { $($($name),+),+ } = limits;
            vec![$($((stringify!($name), $kind::show(*$name))),+),+]
        }
    };
}

limits! {
    time: header, connection_idle, body, write_stall, session_new, session_load, restore_timeout, replay_quiet_interval, replay_quiet_timeout, call, visit_wait, sign_in, cancel, cancel_total, stdin_stall, idempotency,
        ticket_unused, ticket_after, link_key_unused, backoff_min, backoff_max, breaker_window, spawn, log_age, line_wait, settings_wait, delete_wait,
        clock_jump, tombstone, keep_alive, session_idle, client_answer, extension_answer, terminal_alone,
        queued_prompt_max_age;
    time_or_none: clock_settle, stop_stdin, stop_term, stop_kill, drain_stdin, drain_term, drain, drain_cancel;
    size: sign_in_bytes, socket_bytes, body_bytes, prompt_bytes, file_bytes, file_wanted_bytes, attached_text_bytes, batch_bytes, pending_bytes, run_bytes, transaction_bytes, stderr_bytes, start_output_bytes,
        tail_bytes, tails_bytes, store_page_bytes, read_ahead_bytes, pages_bytes, session_bytes_per_hour, check_bytes, session_log_bytes, logs_bytes, http_buffer_bytes, send_buffer_bytes, stream_buffer_bytes, h2_header_bytes, connection_unsent_bytes, unsent_bytes, page_bytes,
        terminal_bytes, terminal_max_bytes, terminals_bytes, terminal_log_bytes;
    size_or_none: free_disk_bytes, disk_reserve_bytes;
    count: session_events_per_hour, breaker_crashes, named_keys, link_keys, tickets, file_answers, file_names, json_depth, batches, commands,
        bad_lines_per_minute, stdin_lines, stdin_reserved, writes, early_updates, pending_requests, line_places, prompts_per_minute,
        requests_per_minute, streams, live_sessions, max_queued_prompts, connections, connections_per_address,
        bad_keys_per_minute, store_readers, h2_streams, h2_unauthenticated_streams, h2_pending_resets;
    count_or_none: queued_prompts, terminals;
    percent: free_disk_percent;
}

fn require_non_zero<T: PartialEq + Default>(field: &Field, value: T) -> Result<T, ConfigError> {
    if value == T::default() { Err(field.invalid("must be more than 0")) } else { Ok(value) }
}

mod time {
    use super::{ConfigError, Field, duration_text, require_non_zero};
    use std::time::Duration;

    pub(super) fn read(field: &Field) -> Result<Duration, ConfigError> {
        require_non_zero(field, field.duration()?)
    }

    pub(super) fn show(value: Duration) -> String {
        format!("\"{}\"", duration_text(value))
    }
}

mod time_or_none {
    use super::{ConfigError, Field};
    use std::time::Duration;

    pub(super) use super::time::show;

    pub(super) fn read(field: &Field) -> Result<Duration, ConfigError> {
        field.duration()
    }
}

mod size {
    use super::{ConfigError, Field, require_non_zero, size_text};

    pub(super) fn read<T: TryFrom<u64> + PartialEq + Default>(field: &Field) -> Result<T, ConfigError> {
        require_non_zero(field, field.size()?)
    }

    pub(super) fn show<T: TryInto<u64>>(value: T) -> String {
        format!("\"{}\"", size_text(value.try_into().unwrap_or(u64::MAX)))
    }
}

mod size_or_none {
    use super::{ConfigError, Field};

    pub(super) use super::size::show;

    pub(super) fn read(field: &Field) -> Result<u64, ConfigError> {
        field.size()
    }
}

mod count {
    use super::{ConfigError, Field, require_non_zero};

    pub(super) fn read<T: TryFrom<u64> + PartialEq + Default>(field: &Field) -> Result<T, ConfigError> {
        require_non_zero(field, field.count()?)
    }

    pub(super) fn show<T: ToString + Copy>(value: T) -> String {
        value.to_string()
    }
}

mod count_or_none {
    use super::{ConfigError, Field};

    pub(super) use super::count::show;

    pub(super) fn read(field: &Field) -> Result<usize, ConfigError> {
        field.count()
    }
}

mod percent {
    use super::{ConfigError, Field};

    pub(super) use super::count::show;

    pub(super) fn read(field: &Field) -> Result<u64, ConfigError> {
        match field.count()? {
            percent @ 0..=100 => Ok(percent),
            _ => Err(field.invalid("must be at most 100")),
        }
    }
}
