//! Starts queued tasks and deletes old ones.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::error::OpenError;
use super::handle::Tasks;
use super::outcome::CancelReason;
use super::record::TaskRecord;
use super::runner;
use crate::eventlog;
use crate::session::SessionRegistry;
use crate::store::Table;
use crate::types::PrincipalLimits;
use crate::webhooks::Webhooks;

/// How often old tasks are deleted, their age, and their number for one tenant.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
const MAX_ENDED: usize = 10_000;
/// The delay after a failed read or write.
const RETRY: Duration = Duration::from_secs(5);
/// A wall clock that jumps delays a deadline by this time at most.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Reads the open tasks, continues those that have begun, and starts queued ones when a process is free.
pub async fn start(
    sessions: SessionRegistry,
    webhooks: Webhooks,
    limits: PrincipalLimits,
) -> Result<Tasks, OpenError> {
    let (tasks, begun) = Tasks::read(sessions, webhooks, limits).await?;
    let shutdown = tasks.context().shutdown.clone();
    for task in begun {
        shutdown.spawn(runner::run(tasks.clone(), task));
    }
    shutdown.spawn(run(tasks.clone()));
    Ok(tasks)
}

/// Runs until the drain.
async fn run(tasks: Tasks) {
    let shutdown = tasks.context().shutdown.clone();
    let mut prune_at = Instant::now() + PRUNE_INTERVAL;
    loop {
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + PRUNE_INTERVAL;
            prune(&tasks).await;
        }
        for task in tasks.expire() {
            let id = task.id;
            if let Err(error) = tasks.end_queued(task, CancelReason::Deadline).await {
                tracing::error!(task = %id, error = &error as &dyn std::error::Error, "could not end a task at its deadline");
                sleep(RETRY).await;
            }
        }
        while let Some(task) = tasks.start_next() {
            shutdown.spawn(runner::run(tasks.clone(), task));
        }
        let next = Instant::now()
            + tasks
                .next_deadline()
                .unwrap_or(LONGEST_WAIT)
                .min(LONGEST_WAIT);
        tokio::select! {
            () = shutdown.drain_started() => return,
            () = tasks.changed() => {}
            () = sleep_until(next.min(prune_at)) => {}
        }
    }
}

/// Deletes ended tasks that are old or too many. Their sessions stay until retention deletes them.
async fn prune(tasks: &Tasks) {
    let pruned = eventlog::prune(
        tasks.log(),
        Table::Task,
        tasks.context().ids.now().before(MAX_AGE),
        MAX_ENDED,
        |task: &TaskRecord| task.outcome.as_ref().map(|outcome| outcome.ended_at),
        TaskRecord::delete,
    );
    if let Err(error) = pruned.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not read old tasks"
        );
    }
}
