//! `/v1/diagnostics`: the state of the gateway in one document.

use std::env::consts::{ARCH, OS};

use axum::Json;
use serde::Serialize;

use super::agents::agent_info;
use super::gateway::check_ready;
use super::operations::Routes;
use crate::surface::http::{ApiError, ApiRequest, AppState, CanAdmin, Result};
use agents::agent::AgentSpec;
use agents::pool::LastFailure;
use base::telemetry::{RecentRecord, metrics, process, recent_records};
use base::types::text::strip_controls;
use base::types::{Principal, Timestamp};
use children::ProcessTree;
use events::api::{
    AgentDiagnostics, Diagnostics, GatewayProcess, LastAgentFailure, LogRecord, ProcessFigures,
    RetentionLimits, StoreFigures, StoredSession, TaskFigures,
};

pub(super) fn routes() -> Routes {
    routes![get_diagnostics]
}

const MAX_SESSIONS: usize = 20;
const MAX_PROCESSES: usize = 200;
/// The limits of the other lists as JSON. The document is then smaller than 1 MiB.
const MAX_AGENTS_BYTES: usize = 384 << 10;
const MAX_CONFIGURATION_BYTES: usize = 256 << 10;
const MAX_LOGS_BYTES: usize = 256 << 10;
/// The longest texts of a failure.
const MAX_DETAIL_BYTES: usize = 1000;
const MAX_STDERR_BYTES: usize = 4 << 10;

/// Gets the state of the gateway in one document, for the admin page and for bug reports.
///
/// The document contains the arguments of configured commands, where the credentials and queries of URLs are masked, and the end of an
/// agent's stderr, where only secrets from `from_env`, `from_file` and variables are masked. It is at most 1 MiB large; `truncated` names the lists that are not complete.
#[utoipa::path(get, path = "/v1/diagnostics", responses(
    (status = 200, body = Diagnostics, description = "The state of the gateway."),
))]
async fn get_diagnostics(request: ApiRequest<CanAdmin>) -> Result<Json<Diagnostics>> {
    let ApiRequest { app, by, .. } = request;
    // A damaged store is a reason to read this document. The log contains the error.
    let largest = app.sessions.largest(MAX_SESSIONS).await.ok();
    let state = app.clone();
    let collect = move || diagnostics(&state, &by, largest);
    let collected = app.shutdown.spawn_blocking(collect).await;
    Ok(Json(collected.map_err(ApiError::internal)?))
}

/// Reads figures in memory and `/proc`. Blocks.
fn diagnostics(app: &AppState, by: &Principal, largest: Option<Vec<StoredSession>>) -> Diagnostics {
    let now = app.ids.now();
    let started_at = metrics::started_at().unwrap_or(now);
    let mut truncated = Vec::new();
    let mut note = |list: &str, is_cut: bool| truncated.extend(is_cut.then(|| list.to_owned()));

    note("largestSessions", largest.is_none());
    let catalogue = app.catalogue.load();
    let agents = catalogue.agents();
    let mut agents: Vec<_> = agents.map(|spec| agent(app, by, spec, now)).collect();
    agents.sort_by(|a, b| a.name.cmp(&b.name));
    note("agents", cut(&mut agents, MAX_AGENTS_BYTES));
    let mut processes = app.pool().processes(&by.user.tenant(), None);
    note("processes", processes.len() > MAX_PROCESSES);
    processes.truncate(MAX_PROCESSES);
    let trees = processes.iter().filter_map(|process| process.tree.as_ref());
    let mut memory = ProcessTree::resident_bytes(trees).into_iter();
    let processes = processes.iter().map(|process| ProcessFigures {
        agent: process.spec.name.clone(),
        pid: process.pid,
        state: process.state,
        session_id: process.holder.map(|holder| holder.session),
        started_at: now.before(process.uptime),
        memory_bytes: process.tree.as_ref().and_then(|_| memory.next()),
    });
    let processes = processes.collect();
    let mut configuration = app.configuration.borrow().clone();
    let is_cut = cut(&mut configuration, MAX_CONFIGURATION_BYTES);
    note("configuration", is_cut);
    let mut logs: Vec<_> = recent_records().into_iter().map(log_record).collect();
    note("logs", cut(&mut logs, MAX_LOGS_BYTES));
    let streams = metrics().open_streams().into_iter();
    let streams = streams.map(|(kind, open)| (kind.to_owned(), u64::try_from(open).unwrap_or(0)));
    let (queued, running) = app.tasks.counts();

    Diagnostics {
        time: now,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        platform: format!("{OS}/{ARCH}"),
        started_at,
        uptime_seconds: now.since(started_at).as_secs(),
        ready: check_ready(app).is_ok(),
        draining: app.shutdown.is_draining(),
        process: GatewayProcess {
            memory_bytes: process::resident_bytes(),
            open_files: process::open_files(),
            max_open_files: process::max_open_files(),
            cpu_seconds: process::processor_seconds(),
        },
        store: store(app, largest.unwrap_or_default()),
        agents,
        processes,
        streams: streams.collect(),
        tasks: TaskFigures {
            queued: queued as u64,
            running: running as u64,
        },
        webhooks_pending: app.webhooks.pending_count() as u64,
        configuration,
        logs,
        truncated,
    }
}

fn store(app: &AppState, largest_sessions: Vec<StoredSession>) -> StoreFigures {
    let log = app.log();
    let limits = &app.limits.log;
    StoreFigures {
        format: log::store::FORMAT,
        shard: log.shard(),
        folder: app.data.display().to_string(),
        log_bytes: log.stored_bytes(),
        disk_free_bytes: log.free_disk_bytes(),
        disk_total_bytes: log.total_disk_bytes(),
        sessions: log.session_count() as u64,
        retention: RetentionLimits {
            max_session_bytes: limits.max_session_log_bytes,
            max_total_bytes: limits.max_total_log_bytes,
            max_age_seconds: limits.max_log_age.as_secs(),
            audit_max_age_seconds: limits.audit_max_age.as_secs(),
            min_free_disk_bytes: limits.min_free_disk_bytes,
            min_free_disk_percent: limits.min_free_disk_percent,
        },
        largest_sessions,
    }
}

fn agent(app: &AppState, by: &Principal, spec: &AgentSpec, now: Timestamp) -> AgentDiagnostics {
    let info = agent_info(app, by, spec);
    let failure = app.pool().last_failure(&spec.name, &by.user.tenant());
    AgentDiagnostics {
        name: info.name,
        status: info.status,
        pool: info.pool,
        last_failure: failure.map(|failure| last_failure(&failure, now)),
    }
}

fn last_failure(last: &LastFailure, now: Timestamp) -> LastAgentFailure {
    let mut detail = last.failure.to_string();
    detail.truncate(detail.floor_char_boundary(MAX_DETAIL_BYTES));
    let stderr = strip_controls(last.failure.stderr_tail());
    let from = stderr.len().saturating_sub(MAX_STDERR_BYTES);
    LastAgentFailure {
        time: now.before(last.age()),
        code: last.failure.code(),
        detail,
        exit_code: last.failure.exit_code(),
        stderr_tail: stderr[stderr.ceil_char_boundary(from)..].to_owned(),
    }
}

fn log_record(record: RecentRecord) -> LogRecord {
    let fields = record.fields.into_iter();
    LogRecord {
        time: record.time,
        level: record.level.to_owned(),
        target: record.target.to_owned(),
        message: record.message,
        fields: fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

/// Removes the last entries of a list that is larger than this as JSON. Returns whether an entry was removed.
fn cut<T: Serialize>(entries: &mut Vec<T>, max_bytes: usize) -> bool {
    let mut left = max_bytes;
    let fits = |entry: &&T| {
        let json = serde_json::to_vec(entry).unwrap_or_default();
        let rest = left.checked_sub(json.len() + 1);
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    let kept = entries.iter().take_while(fits).count();
    let is_cut = kept < entries.len();
    entries.truncate(kept);
    is_cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_cut_at_its_size_as_json() {
        let mut entries = vec!["\"", "ab", "c"];
        assert!(!cut(&mut entries, 14));
        assert_eq!(serde_json::to_string(&entries).unwrap().len(), 15);
        assert!(cut(&mut entries, 13));
        assert_eq!(entries, ["\"", "ab"]);
        assert!(cut(&mut entries, 4));
        assert!(entries.is_empty());
    }
}
