//! The bounds, sizes and positions of the file's content, in memory.

use rusqlite::Connection;

use super::super::usage::Usages;
use super::super::{Batch, LogUsage, RunHead};
use super::remove::PrunedLog;
use super::sums::{Sums, Unsummed};
use super::{OpenError, ends, from_sql, read, sums, to_sql};

/// The index in memory. It is updated after each commit.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) usages: Usages,
    pub(super) last_pos: u64,
    pub(super) pruned_pos: u64,
    pub(super) unsummed: Unsummed,
}

impl Index {
    /// Loads the stored statistics and then all runs that were committed after them. It does not read frames.
    /// The result is not verified, except for the last position: see [`bounds`].
    pub(super) fn load(connection: &Connection) -> Result<Self, OpenError> {
        let place = |key: &str| {
            let select = "SELECT value FROM meta WHERE key = ?1";
            connection.query_row(select, [key], |row| row.get(0)).map(from_sql)
        };
        let (last_pos, pruned_pos) = (place("last_pos")?, place("pruned_pos")?);
        let mut index = Self { last_pos, pruned_pos, ..Self::default() };
        let summed_pos = if let Some((usages, pos)) = sums::load(connection)? {
            index.usages = usages;
            index.last_pos = last_pos.max(pos);
            pos
        } else {
            index.unsummed.begin_anew();
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
            let (Ok(head), Ok(tenant)) = (read::head(row), row.get_ref(6)?.as_str()) else {
                damaged += 1;
                continue;
            };
            if head.last_pos == 0 || head.last_pos > ends::MOST {
                damaged += 1;
                continue;
            }
            index.append(tenant, &head);
        }
        if damaged > 0 {
            tracing::error!(runs = damaged, "runs of events are damaged on disk: readers skip them");
        }
        index.last_pos = index.last_pos.max(ends::last_place(connection, damaged > 0)?);
        Ok(index)
    }

    pub(super) fn append(&mut self, tenant: &str, head: &RunHead) {
        self.last_pos = self.last_pos.max(head.last_pos);
        self.usages.append(tenant, head);
        self.unsummed.append(head.session);
    }

    /// The statistics that a commit must write, if they are due. Only the process that commits runs may write
    /// them: a command for keys does not know the logs.
    pub(super) fn sums_with(&self, batch: &Batch) -> Option<Sums> {
        let due = !batch.runs.is_empty() && self.unsummed.is_much();
        due.then(|| self.unsummed.sums(&self.usages, self.last_pos))
    }

    /// The statistics after a prune.
    pub(super) fn sums_after(&self, pruned: &[PrunedLog]) -> Sums {
        let mut sums = self.unsummed.sums(&self.usages, self.last_pos);
        sums.logs.retain(|log| pruned.iter().all(|pruned| pruned.removal.session != log.session));
        sums.logs.extend(pruned.iter().filter_map(|pruned| {
            let log = self.usages.get(pruned.removal.session)?;
            Some(LogUsage {
                first_seq: pruned.first_seq,
                first_pos: pruned.first_pos,
                bytes: log.bytes.saturating_sub(pruned.gone.bytes),
                runs: log.runs.saturating_sub(pruned.gone.runs),
                ..log
            })
        }));
        sums
    }

    pub(super) fn committed(&mut self, batch: &Batch, heads: &[RunHead]) {
        for session in &batch.erase {
            self.usages.erase(*session);
        }
        batch.runs.iter().zip(heads).for_each(|(run, head)| self.append(run.tenant.as_str(), head));
    }
}
