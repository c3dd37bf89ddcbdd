//! The bounds, sizes and positions of the file's content, in memory.

use rusqlite::Connection;

use super::super::usage::Usages;
use super::super::{Batch, RunHeader};
use super::error::OpenError;
use super::log_stats::{self, DirtyStats, LogStats};
use super::remove::PrunedLog;
use super::row::{MAX_PLAUSIBLE, run_header, to_sql};
use super::{bounds, meta};

/// The index in memory. It is updated after each commit.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) usages: Usages,
    pub(super) last_pos: u64,
    pub(super) pruned_pos: u64,
    pub(super) dirty_stats: DirtyStats,
}

impl Index {
    /// Loads the stored statistics and then all runs that were committed after them. It does not read frames.
    /// The result is not verified, except for the last position: see [`bounds`].
    pub(super) fn load(connection: &Connection) -> Result<Self, OpenError> {
        let last_pos = meta::position(connection, "last_pos")?;
        let pruned_pos = meta::position(connection, "pruned_pos")?;
        let mut index = Self {
            last_pos,
            pruned_pos,
            ..Self::default()
        };
        let summed_pos = if let Some((usages, pos)) = log_stats::load(connection)? {
            index.usages = usages;
            index.last_pos = last_pos.max(pos);
            pos
        } else {
            index.dirty_stats.full_rewrite = true;
            0
        };
        let mut select = connection.prepare(
            "SELECT session, first_seq, last_seq, pos, length(frames), time, tenant FROM run
             WHERE pos > ?1 ORDER BY pos",
        )?;
        let mut rows = select.query([to_sql(summed_pos)])?;
        let mut damaged = 0_u64;
        while let Some(row) = rows.next()? {
            // A row with columns of other types is damaged. Its readers are reset.
            let (Ok(head), Ok(tenant)) = (run_header(row), row.get_ref(6)?.as_str()) else {
                damaged += 1;
                continue;
            };
            if head.last_pos == 0 || head.last_pos > MAX_PLAUSIBLE {
                damaged += 1;
                continue;
            }
            index.append(tenant, &head);
        }
        if damaged > 0 {
            tracing::error!(
                runs = damaged,
                "runs of events are damaged on disk: readers skip them"
            );
        }
        index.last_pos = index
            .last_pos
            .max(bounds::max_pos(connection, damaged > 0)?);
        Ok(index)
    }

    pub(super) fn append(&mut self, tenant: &str, head: &RunHeader) {
        self.last_pos = self.last_pos.max(head.last_pos);
        self.usages.append(tenant, head);
        self.dirty_stats.mark_dirty(head.session);
    }

    /// The statistics that a commit must write, if they are due. Only the process that commits runs may write
    /// them: a command for keys does not know the logs.
    pub(super) fn stats_due(&self, batch: &Batch) -> Option<LogStats> {
        let due = !batch.runs.is_empty() && self.dirty_stats.is_due();
        due.then(|| self.dirty_stats.snapshot(&self.usages, self.last_pos))
    }

    /// The statistics after a prune.
    pub(super) fn stats_after_prune(&self, pruned: &[PrunedLog]) -> LogStats {
        let mut stats = self.dirty_stats.snapshot(&self.usages, self.last_pos);
        stats.logs.retain(|log| {
            pruned
                .iter()
                .all(|pruned| pruned.log.session != log.session)
        });
        stats
            .logs
            .extend(pruned.iter().map(|pruned| pruned.log.clone()));
        stats
    }

    pub(super) fn committed(&mut self, batch: &Batch, heads: &[RunHeader]) {
        for session in &batch.erase {
            self.usages.erase(*session);
        }
        batch
            .runs
            .iter()
            .zip(heads)
            .for_each(|(run, head)| self.append(run.tenant.as_str(), head));
    }
}
